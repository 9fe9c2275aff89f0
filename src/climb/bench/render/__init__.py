"""A table as text: for a terminal, in Markdown, LaTeX, CSV or HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from itertools import chain, product

import rich.box
from rich.console import Console, Group
from rich.table import Table as RichTable
from rich.text import Text

from climb.bench.render.markup import render_html, render_latex
from climb.bench.render.model import blocks, first_headings, headings
from climb.bench.tables import Table
from climb.errors import find_named

__all__ = ["FORMATS", "SUFFIXES", "render", "terminal_table"]

CSV_HEADINGS = (
    *("table", "column", "row", "kind", "group", "metric", "mean", "std", "n", "bold", "p", "hedges_g", "pairs"),
    *("low", "high", "paper_mean", "paper_std", "paper_bold", "difference", "seeds", "values"),
)


def terminal_table(table: Table) -> Group:
    """A table for rich. Bold numbers also have a star, for terminals and files without bold."""
    grid = RichTable(box=rich.box.SIMPLE_HEAD)
    for text in first_headings(table):
        grid.add_column(text, no_wrap=True)
    for heading in headings(table):
        grid.add_column(heading.text, justify="right", overflow="fold")  # a narrow terminal folds after the mean
    for lines in blocks(table).values():
        for line in lines:
            if line.apart:
                grid.add_section()
            fields = [Text(f"{f.text} *", style="bold") if f.bold else Text(f"{f.text}  ") for f in line.fields]
            grid.add_row(*line.place, Text(line.row.label), *fields)
        grid.add_section()
    notes = "\n".join(f"bold, *{note[4:]}" if note.startswith("bold: ") else note for note in table.notes)
    # rich would fold its own title and caption to the width of the table.
    return Group(Text(table.layout.title, style="italic"), grid, Text(notes, style="dim italic"))


def render_terminal(table: Table) -> str:
    """The terminal's table as plain text, as wide as it needs to be."""
    out = io.StringIO()
    Console(file=out, width=400, color_system=None).print(terminal_table(table))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()).strip("\n") + "\n"


def render_markdown(table: Table) -> str:
    """A heading, a table and the notes."""
    first, over = first_headings(table), headings(table)
    rows = [[*first, *(heading.text for heading in over)], [*("---" for _ in first), *("---:" for _ in over)]]
    for line in chain(*blocks(table).values()):
        fields = [f.text.replace(f.value, f"**{f.value}**", 1) if f.bold else f.text for f in line.fields]
        rows.append([*line.place, line.row.label, *fields])
    lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
    return "\n".join([f"### {table.layout.title}", "", *lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


def render_csv(table: Table) -> str:
    """Data without rounding, a line per cell: mean, spread, test, interval, the paper's value and the raw values."""
    out, layout = io.StringIO(), table.layout
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*CSV_HEADINGS, *(["repeat_noise", "within_noise"] if table.noise else [])])
    for column, row, metric in product(layout.columns, layout.rows, layout.metrics):
        if cell := table.cell(row.label, column, metric.label):
            paper, place = cell.paper, (layout.name, column, row.label, row.kind, row.group, metric.label)
            numbers = (cell.mean, cell.std, cell.n, int(cell.bold), cell.p, cell.effect, cell.pairs)
            printed = (paper.mean, paper.std, int(paper.bold)) if paper else (None, None, None)
            runs = (" ".join(map(str, cell.seeds)), " ".join(map(repr, cell.values)))
            noise = table.noise.get(metric.label)
            marks = [noise and noise.std, int(cell.within_noise)] if table.noise else []
            interval = cell.interval or (None, None)
            writer.writerow([*place, *numbers, *interval, *printed, cell.difference, *runs, *marks])
    return out.getvalue()


FORMATS: dict[str, Callable[[Table], str]] = {
    "terminal": render_terminal,
    "markdown": render_markdown,
    "latex": render_latex,
    "csv": render_csv,
    "html": render_html,
}
SUFFIXES = {"markdown": "md", "latex": "tex", "csv": "csv", "html": "html"}
"""File suffix of each format for files."""


def render(table: Table, form: str) -> str:
    """The table in one of `FORMATS`."""
    return find_named("format", form, FORMATS)(table)
