"""HTML building blocks of all pages: document, sections, figures, legends, tables. Text arguments are escaped."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from climb.report.chart import Curve, line_chart

THEME_BUTTON = '<button type="button" class="theme" aria-label="light or dark" title="light or dark">◐</button>'
NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # yet names of files may have them


def document(title: str, body: str, *, head: str, attributes: str = "", end: str = "") -> str:
    """A whole page, well-formed as HTML and as XML.

    Args:
        title: plain text.
        body: markup of the main element.
        head: more markup for the head element.
        attributes: attributes of the main element.
        end: markup after the main element.
    """
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>{escape(title)}</title>
{head}
</head>
<body>
{THEME_BUTTON}
<main{attributes}>
{body}
</main>
{end}
</body>
</html>
"""
    return NOT_IN_XML.sub("\ufffd", encodable(page))


def encodable(text: str) -> str:
    r"""Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD.

    They come from JSON, and from file names that are not UTF-8.

    >>> encodable("caf\udce9 and \ud800"), encodable("café")
    ('caf� and �', 'café')
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def section(name: str, heading: str, *parts: str) -> str:
    """A section of the page from markup. ``name`` is its id, by which a live page replaces it."""
    return "\n".join([f'<section id="{escape(name)}"><h2>{escape(heading)}</h2>', *filter(None, parts), "</section>"])


def figure(picture: str, caption: str, *, kind: str = "panel") -> str:
    """A picture with its caption, both markup."""
    return f'<figure class="{escape(kind)}">{picture}<figcaption>{caption}</figcaption></figure>'


def grid(figures: Iterable[str], *, otherwise: str = "") -> str:
    """Figures side by side, as many as the window has room for. Without any, the remark ``otherwise``."""
    content = "".join(figures)
    return f'<div class="grid-of">{content}</div>' if content else remark(otherwise)


def remark(text: str) -> str:
    """A paragraph in quiet colours; nothing for an empty text."""
    return f'<p class="quiet">{escape(text)}</p>' if text else ""


def chart_figure(
    curves: Sequence[Curve],
    *,
    caption: str,
    floor: float | None = None,
    floor_name: str = "random encoder",
    single: bool = False,
    **options: Any,
) -> str:
    """A line chart with its caption and a legend; nothing without curves.

    Args:
        curves: the lines.
        caption: markup.
        floor: accuracy before training, drawn as a level.
        floor_name: its name in the legend.
        single: whether a chart of one line has a legend, too.
        options: more arguments of `line_chart`.
    """
    if not curves:
        return ""
    chart = line_chart(curves, level=floor, **options)
    entries = [(f"line {curve.style}", curve.name) for curve in curves]
    if floor is not None:
        entries.append(("level", floor_name))
    if len(entries) < 2 and not single:
        return figure(chart, caption)
    items = (
        f'<li><svg class="key" viewBox="0 0 32 10" aria-hidden="true">'
        f'<line class="{escape(style)}" x1="1" y1="5" x2="31" y2="5"/></svg>{escape(name)}</li>'
        for style, name in entries
    )
    return figure(chart, f'{caption}<ul class="keys">{"".join(items)}</ul>')


def table(rows: Iterable[Sequence[str]], *, heading: Sequence[str] = (), numbers: Container[int] = ()) -> str:
    """A table of plain text. The first cell of a row is its heading; the columns in ``numbers`` are right-aligned.

    >>> table([["CBP", "1,000"]], numbers=[1]).splitlines()[1]
    '<tr><th scope="row">CBP</th><td class="number">1,000</td></tr>'
    """
    lines = ['<div class="wide"><table>']
    if heading:
        cells = (_cell("th", name, place in numbers, ' scope="col"') for place, name in enumerate(heading))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    for first, *others in rows:
        cells = (_cell("td", text, place in numbers) for place, text in enumerate(others, start=1))
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{"".join(cells)}</tr>')
    return "\n".join([*lines, "</table></div>"])


def _cell(tag: str, text: str, number: bool, attributes: str = "") -> str:
    kind = ' class="number"' if number else ""
    return f"<{tag}{attributes}{kind}>{escape(text)}</{tag}>"


def number_rows(columns: Sequence[dict[str, Any]], rows: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Rows of a table: for each key, its name, a number from each column, and its meaning, if given.

    Args:
        columns: numbers by key. A key that all columns lack has no row.
        rows: key to name, format and, optionally, meaning.

    >>> number_rows([{"cbp": 1000}, {}], {"cbp": ("CBP", ",d"), "seed": ("Seed", "d")})
    [['CBP', '1,000', '']]
    """
    return [
        [name, *(formatted(column.get(key), form) for column in columns), *meaning]
        for key, (name, form, *meaning) in rows.items()
        if any(column.get(key) is not None for column in columns)
    ]


def flattened(data: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as pairs of a dotted name and a value.

    >>> flattened({"seed": 0, "learner": {"lr": 0.3, "memory": {"capacity": 240}}, "options": {}})
    [('seed', '0'), ('learner.lr', '0.3'), ('learner.memory.capacity', '240'), ('options', '-')]
    """
    pairs: list[tuple[str, str]] = []
    for key, value in data.items():
        if isinstance(value, dict) and value:
            pairs += flattened(value, f"{prefix}{key}.")
        else:
            pairs.append((f"{prefix}{key}", "-" if value is None or value == {} else str(value)))
    return pairs


def formatted(value: float | None, form: str) -> str:
    """A number in this format, an empty text for None."""
    return "" if value is None else format(value, form)
