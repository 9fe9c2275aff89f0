"""From an empty table to its runs: rows and columns as asked for, one run a place and seed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from climb.bench.arrange import ROW_KINDS
from climb.bench.cell import Layout, RowSpec
from climb.bench.comparable import Aspect
from climb.bench.grids.configure import configure
from climb.bench.grids.grid import Entry, Grid, Request
from climb.errors import InputError
from climb.impossible import check_config
from climb.methods import find_method
from climb.presets import NETWORK

IID_TASKS = 20
"""The i.i.d. bound knows no tasks: runs evaluated at this many moments, or fewer where no column has as many, serve
every column."""

Settings = Callable[[RowSpec], dict[str, Any]]


def fill(request: Request, layout: Layout, *, seeds: int, settings: Settings | None = None) -> Grid:
    """The grid of a table: its layout cut to what was asked for, and the run of every place.

    Args:
        request: methods, tasks, seeds, scale.
        layout: the paper's rows and columns.
        seeds: how many seeds the paper has.
        settings: what `configure` is given for a row, besides its method.
    """
    rows = chosen_rows(request, layout)
    tasks = tuple(dict.fromkeys(request.tasks)) or tuple(_tasks_of(label) for label in layout.columns)
    entries = [
        Entry(
            row=row.label,
            column=column(number),
            config=configure(
                request,
                seed=seed,
                tasks=min(IID_TASKS, max(tasks)) if row.method == "iid" else number,
                own_rates=row.own_rates,
                **{"method": row.method, **(settings(row) if settings else {})},
            ),
        )
        for row in rows
        for number in tasks
        for seed in request.chosen_seeds(seeds)
    ]
    for learner in {entry.config.learner for entry in entries}:
        check_config(learner)  # what cannot be run is refused here, not when its turn has come
    # A preset that evaluates teachers evaluates the student of a method that has none.
    varies: tuple[Aspect, ...] = ("evaluated",) if NETWORK[request.preset] == "teacher" else ()
    columns = tuple(column(number) for number in tasks)
    cut = replace(layout, rows=rows, columns=columns, varies=(*layout.varies, *varies))
    return Grid(layout=cut, entries=tuple(entries))


def column(tasks: int) -> str:
    """Heading of a number of tasks.

    >>> column(20)
    '20 tasks'
    """
    return f"{tasks} task{'s' if tasks > 1 else ''}"


def chosen_rows(request: Request, layout: Layout) -> tuple[RowSpec, ...]:
    """The paper's rows, or those asked for: in the paper's order, then methods that its table lacks.

    >>> from climb.bench.layouts import find_layout
    >>> [row.label for row in chosen_rows(Request(methods=("lump", "climb")), find_layout("table-regular"))]
    ['CLIMB', 'lump']
    """
    if not request.methods:
        return layout.rows
    for name in request.methods:
        find_method(name)  # refuses a name that does not exist
    known = {row.method for row in layout.rows}
    if len(known) == 1 < len(layout.rows):  # its rows are settings of one method
        if set(request.methods) != known:
            raise InputError(
                f"the rows of {layout.name} are settings of climb; "
                f"given --methods {' '.join(request.methods)}: leave it out"
            )
        return layout.rows
    added = [name for name in dict.fromkeys(request.methods) if name not in known]
    return (
        *(row for row in layout.rows if row.method in request.methods),
        *(RowSpec(label=name, method=name, kind=ROW_KINDS.get(name, "method")) for name in added),
    )


def _tasks_of(label: str) -> int:
    found = re.match(r"\d+", label)
    if found is None:
        raise InputError(f"column '{label}' does not begin with a number of tasks")
    return int(found.group())
