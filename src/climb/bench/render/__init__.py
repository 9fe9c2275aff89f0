"""A table for people and for programs."""

from __future__ import annotations

from collections.abc import Callable

from climb.bench.cell import Table
from climb.bench.render.comma_separated import render_csv
from climb.bench.render.latex import render_latex
from climb.bench.render.markdown import render_markdown
from climb.bench.render.terminal import render_terminal, terminal_table
from climb.bench.render.web_page import render_html
from climb.errors import unknown

FORMATS: dict[str, Callable[[Table], str]] = {
    "terminal": render_terminal,
    "markdown": render_markdown,
    "latex": render_latex,
    "csv": render_csv,
    "html": render_html,
}
"""What a table can be written as."""

SUFFIXES = {"markdown": "md", "latex": "tex", "csv": "csv", "html": "html", "terminal": "txt"}
"""How a file of each format ends."""


def render(table: Table, form: str) -> str:
    """The table as text in one of `FORMATS`."""
    if form not in FORMATS:
        raise unknown("format", form, FORMATS)
    return FORMATS[form](table)


__all__ = ["FORMATS", "SUFFIXES", "render", "terminal_table"]
