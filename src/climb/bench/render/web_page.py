"""A table as one page of HTML that needs nothing else."""

from __future__ import annotations

from html import escape

from climb.bench.cell import Table
from climb.bench.render.blocks import OURS, Block, Field, Heading, blocks, headings

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; border-block: 2px solid; }
th, td { padding: .2rem .7rem; text-align: right; white-space: nowrap; }
th[scope=row], th[scope=rowgroup] { text-align: left; font-weight: normal; }
thead th { border-bottom: 1px solid; }
tbody + tbody tr:first-child > * { border-top: 1px solid; }
tr.apart > * { border-top: 1px solid color-mix(in srgb, currentColor 35%, transparent); }
small, .beside { opacity: .75; }
"""


def render_html(table: Table) -> str:
    """The table, its title and its notes. A number says its seeds and its test when it is pointed at."""
    several = len(table.layout.columns) > 1
    over = headings(table)
    title = escape(table.layout.title)
    first = ["", "method"] if several else ["method"]
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in (*first, *(heading.text for heading in over)))
    lines = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        f'<div class="wide"><table><thead><tr>{names}</tr></thead>',
        *(_body(table, block, over, several=several) for block in blocks(table)),
        "</table></div>",
        "<ul>",
        *(f"<li>{escape(note)}</li>" for note in table.notes),
        "</ul></body></html>",
    ]
    return "\n".join(lines) + "\n"


def _body(table: Table, block: Block, over: tuple[Heading, ...], *, several: bool) -> str:
    lines = ["<tbody>"]
    for number, line in enumerate(block.lines):
        place = ""
        if several and number == 0:
            place = f'<th scope="rowgroup" rowspan="{len(block.lines)}">{escape(block.title)}</th>'
        cells = "".join(
            _cell(field, _says(table, line.row.label, block.title, heading), ours=heading.part == OURS)
            for field, heading in zip(line.fields, over, strict=True)
        )
        kind = ' class="apart"' if line.apart else ""
        lines.append(f'<tr{kind}>{place}<th scope="row">{escape(line.row.label)}</th>{cells}</tr>')
    return "\n".join([*lines, "</tbody>"])


def _cell(field: Field, says: str, *, ours: bool) -> str:
    value = f"<strong>{escape(field.value)}</strong>" if field.bold else escape(field.value)
    spread = f" <small>± {escape(field.spread)}</small>" if field.spread else ""
    kind = f' title="{escape(says)}"' if ours else ' class="beside"'
    return f"<td{kind}>{value}{spread}</td>"


def _says(table: Table, row: str, column: str, heading: Heading) -> str:
    cell = table.cell(row, column, heading.metric.label)
    if cell is None:
        return "no run"
    said = [f"n = {cell.n}", f"seeds {', '.join(map(str, cell.seeds))}"]
    if cell.p is not None:
        said.append(f"p = {cell.p:.3g} against the best")
    if cell.effect is not None:
        said.append(f"Hedges' g {cell.effect:.2f}")
    if cell.pairs is not None:
        said.append(f"{cell.pairs} pairs")
    if cell.interval is not None:
        digits = heading.metric.digits
        said.append(f"95 % bootstrap interval {cell.interval[0]:.{digits}f} to {cell.interval[1]:.{digits}f}")
    return "; ".join(said)
