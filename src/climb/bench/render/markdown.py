"""A table in Markdown."""

from __future__ import annotations

from climb.bench.cell import Table
from climb.bench.render.blocks import Field, blocks, headings


def render_markdown(table: Table) -> str:
    """Pipes and stars, a heading before it and the notes after it."""
    several = len(table.layout.columns) > 1
    over = headings(table)
    first = ["", "method"] if several else ["method"]
    lines = [
        f"### {table.layout.title}",
        "",
        _row([*first, *(heading.text for heading in over)]),
        _row([*("---" for _ in first), *("---:" for _ in over)]),
    ]
    for block in blocks(table):
        for number, line in enumerate(block.lines):
            place = [block.title if number == 0 else ""] if several else []
            lines.append(_row([*place, line.row.label, *map(_text, line.fields)]))
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


def _text(field: Field) -> str:
    text = f"**{field.value}**" if field.bold else field.value
    return f"{text} ± {field.spread}" if field.spread else text


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
