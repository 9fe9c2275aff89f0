"""What a grid leaves for people: its table in every format, and its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from climb.bench.cell import Against, Table, build_table
from climb.bench.figures import FIGURES, draw_figure
from climb.bench.grids import Grid
from climb.bench.plan import Plan
from climb.bench.render import SUFFIXES, render
from climb.errors import InputError
from climb.files import write_text

WRITTEN = ("markdown", "latex", "csv", "html")


def publish(grid: Grid, plan: Plan, folder: Path, *, against: Against | None = None, mix: bool = False) -> Table:
    """Fill the grid's table with the runs that are finished and write it into ``folder``, as table.md, .tex, .csv and
    .html; a figure's grid is drawn there too."""
    table = build_table(grid.layout, plan.placed(grid), against=against, mix=mix)
    for form in WRITTEN:
        write_text(folder / f"table.{SUFFIXES[form]}", render(table, form))
    runs = list(plan.finished(grid).values())
    if grid.name in FIGURES and runs:
        draw_figure(grid.name, runs, folder)
    return table


def publish_each(
    grids: Sequence[Grid], plan: Plan, folder: Path, *, against: Against | None = None, mix: bool = False
) -> Iterator[tuple[Grid, Table | InputError]]:
    """`publish` every grid, into a folder of its name; one whose runs cannot be compared comes with the reason, and
    the others are published all the same."""
    for grid in grids:
        try:
            yield grid, publish(grid, plan, folder / grid.name, against=against, mix=mix)
        except InputError as error:
            yield grid, error
