"""HTML tables, everything in them escaped."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from html import escape
from typing import Any


def table(rows: Iterable[Sequence[str]], *, heading: Sequence[str] = (), numbers: Container[int] = ()) -> str:
    """Rows of text; the first cell of each names it, the columns in ``numbers`` are set flush right.

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


def flattened(data: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as pairs of a dotted name and its value.

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


def _cell(tag: str, text: str, number: bool, attributes: str = "") -> str:
    kind = ' class="number"' if number else ""
    return f"<{tag}{attributes}{kind}>{escape(text)}</{tag}>"
