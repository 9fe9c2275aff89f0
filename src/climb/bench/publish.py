"""What a grid leaves for people: its table in every format, and its figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
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
    table = replace(table, notes=(*table.notes, *_missing(grid, plan), *_without_tasks(grid)))
    for form in WRITTEN:
        write_text(folder / f"table.{SUFFIXES[form]}", render(table, form))
    runs = list(plan.finished(grid).values())
    if grid.name in FIGURES and runs:
        draw_figure(grid.name, runs, folder)
    return table


def _missing(grid: Grid, plan: Plan) -> list[str]:
    """Rows that have fewer seeds than they were meant to have, or are not there at all."""
    finished = plan.finished(grid)
    keys = dict.fromkeys(entry.config.config_hash() for entry in grid.entries)
    rows = dict.fromkeys(entry.row for entry in grid.entries if entry.config.config_hash() not in finished)
    left = len(keys) - len(finished)
    return [f"not whole: {left} of {len(keys)} runs are not finished ({', '.join(rows)})"] if left else []


def _without_tasks(grid: Grid) -> list[str]:
    """The i.i.d. bound, whose runs serve every column: its CA and FA are over tasks that the column may not have."""
    rows = {entry.row: entry.config.stream.tasks for entry in grid.entries if entry.config.learner.method == "iid"}
    return [
        f"{row} knows no tasks: evaluated on {number} of equal size in every column" for row, number in rows.items()
    ]


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
