"""A table on a terminal, or as plain text."""

from __future__ import annotations

import io

import rich.box
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from climb.bench.cell import Table
from climb.bench.render.blocks import blocks, headings


def terminal_table(table: Table) -> Group:
    """For rich to print. What is bold also has a star, for terminals and files that cannot show it."""
    drawn = RichTable(box=rich.box.SIMPLE_HEAD)
    parts = blocks(table)
    several = len(table.layout.columns) > 1
    if several:
        drawn.add_column("", no_wrap=True)
    drawn.add_column("method", no_wrap=True)
    for heading in headings(table):
        drawn.add_column(
            heading.text, justify="right", overflow="fold"
        )  # on a narrow terminal, a spread goes below its mean
    for block in parts:
        for number, line in enumerate(block.lines):
            if line.apart:
                drawn.add_section()
            fields = [
                Text(f"{field.text} *", style="bold") if field.bold else Text(f"{field.text}  ")
                for field in line.fields
            ]
            drawn.add_row(*([block.title if number == 0 else ""] if several else []), Text(line.row.label), *fields)
        drawn.add_section()
    notes = "\n".join(f"bold, *{note[4:]}" if note.startswith("bold: ") else note for note in table.notes)
    # Not the title and caption of rich, which it folds to the width of the table.
    return Group(Text(table.layout.title, style="italic"), drawn, Text(notes, style="dim italic"))


def render_terminal(table: Table) -> str:
    """The same as plain text, as wide as it needs to be."""
    out = io.StringIO()
    Console(file=out, width=400, color_system=None).print(terminal_table(table))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n") + "\n"
