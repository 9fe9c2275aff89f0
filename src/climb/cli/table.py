"""`climb table`: finished runs side by side."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

import tyro
from rich.console import Console


def table(
    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS [RUNS ...]")],
    /,
    *,
    format: Literal["terminal", "markdown", "latex", "csv", "html"] = "terminal",
    layout: str | None = None,
    against: Literal["paper"] | None = None,
    test: tuple[str, ...] = (),
    mix: bool = False,
) -> None:
    """Mean and spread over seeds, the best in bold, of runs that may be compared.

    Args:
        runs: run folders, or folders that hold some, however deep.
        format: what is printed.
        layout: a table of the paper (table-regular, table-irregular, ...); without it, rows and columns are made for
            the runs at hand.
        against: "paper" prints the paper's numbers beside ours, with the difference.
        test: how a row is held against the best: student, welch or paired; one-sided or two-sided; holm.
        mix: print runs together that differ in budget, dataset, probe, network evaluated or preset.
    """
    from climb.bench.arrange import fitting_layout, own_layout, place
    from climb.bench.cell import build_table
    from climb.bench.collect import find_runs
    from climb.bench.layouts import find_layout
    from climb.bench.render import render, terminal_table
    from climb.bench.statistics import comparison
    from climb.errors import InputError

    if not runs:
        raise InputError("no runs given; type: climb table runs/")
    rule = comparison(test)
    found = find_runs(runs)
    if layout is None and against is None:
        shape, placed = own_layout(found)
    else:
        shape = find_layout(layout) if layout is not None else fitting_layout(found)
        placed, left = place(shape, found)
        if not placed:
            raise InputError(f"none of the {len(found)} runs has a place in {shape.name}; leave --layout away")
        for run in left:
            print(f"climb: no place in {shape.name} for {run.path}", file=sys.stderr)
    filled = build_table(shape, placed, test=rule, against=against, mix=mix)
    console = Console(highlight=False)
    if format == "terminal" and console.is_terminal:
        console.print(terminal_table(filled))
    else:
        print(render(filled, format), end="")
        for note in filled.notes if format == "csv" else ():  # data has no room for them
            print(f"climb: {note}", file=sys.stderr)
