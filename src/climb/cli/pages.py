"""`climb report`, `climb serve` and `climb table`: runs as pages and as tables."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from climb.cli.output import print_error

if TYPE_CHECKING:
    from climb.bench.tables import Table

Format = Literal["terminal", "markdown", "latex", "csv", "html"]


def report(run: str, /, *, beside: tuple[str, ...] = ()) -> None:
    """Write report.html, a self-contained page, into a run folder.

    Args:
        run: folder of climb run, finished or not, or of climb learn.
        beside: folders of other runs to compare with.
    """
    from climb.report import write_report  # imports what a run needs: not needed for --help

    print(write_report(Path(run), others=[Path(other) for other in beside]))


def serve(folder: str = "runs", /, *, host: str = "127.0.0.1", port: int = 8765, token: str | None = None) -> None:
    """Show runs in a browser while they train: an index, a page per run, comparison, /metrics for Prometheus.

    Args:
        folder: a folder with runs at any depth, or the folder of one run.
        host: address to listen on; all but the local one need a token.
        port: port to listen on; 0 for a free one.
        token: secret of at least 16 characters. A browser sends it once (?token=...), a program as
            "Authorization: Bearer ...". Prefer the environment variable CLIMB_TOKEN: other users of the machine see the
            command line.
    """
    from climb.serve import serve as start  # the server's libraries are not needed for --help

    secret = token or os.environ.get("CLIMB_TOKEN") or None
    hint = "" if secret is None else "?token=... with your token"
    start(Path(folder), host=host, port=port, token=secret, ready=lambda address: print(address + hint, flush=True))


def table(
    runs: tuple[str, ...],
    /,
    *,
    format: Format = "terminal",
    layout: str | None = None,
    against: Literal["paper"] | None = None,
    test: tuple[str, ...] = (),
    mix: bool = False,
    extend: bool = False,
    upto: bool = False,
) -> None:
    """Mean and spread over seeds, the best in bold, of runs that may be compared.

    Args:
        runs: run folders, or folders with runs at any depth.
        format: output format.
        layout: a table of the paper (table-regular, table-irregular, ...); by default, rows and columns
            follow from the runs.
        against: "paper" prints the paper's numbers beside ours, with the difference.
        test: how rows are compared with the best, in words: student, welch or paired; one-sided or two-sided; holm
            corrects for the number of comparisons. By default the paper's: student one-sided.
        mix: print runs together that differ in budget, dataset, probe, network evaluated or preset.
        extend: add rows and columns to a table of the paper, for further methods and other numbers of tasks.
        upto: add CA up-to to a table of the paper that has CA.
    """
    from climb.bench.arrange import extended, fitting_layout, own_layout, place
    from climb.bench.collect import find_runs
    from climb.bench.layouts import find_layout, with_upto
    from climb.bench.noise import split_repeats
    from climb.bench.side_by_side import side_by_side
    from climb.bench.statistics import comparison
    from climb.bench.tables import build_table
    from climb.errors import InputError

    if not runs:
        raise InputError("no runs given; type: climb table runs/")
    rule = comparison(test)
    finished, repeats = split_repeats(find_runs(runs))
    if not finished:
        raise InputError("these runs are repeats alone; give the runs that they repeat, too")
    if layout is None and against is None:
        shape, placed = own_layout(finished)
        print_filled(build_table(shape, placed, test=rule, mix=mix, repeats=repeats), format)
        return
    shape = find_layout(layout) if layout is not None else fitting_layout(finished)
    shape = with_upto(shape) if upto else shape
    shape = extended(shape, finished) if extend else shape
    placed, left = place(shape, finished)
    if not placed:
        further = "" if extend else ", or give --extend for further methods and numbers of tasks"
        raise InputError(f"none of the {len(finished)} runs has a place in {shape.name}; leave --layout away{further}")
    for run in left:
        print_error(f"no place in {shape.name} for {run.path}")
    tables = {}
    for dataset in dict.fromkeys(str(run.result["dataset"]) for run in placed):
        here = [run for run in placed if run.result["dataset"] == dataset]
        same = [group for group in repeats if group[0].result["dataset"] == dataset]
        tables[dataset] = build_table(shape, here, test=rule, against=against, mix=mix, repeats=same)
    print_filled(side_by_side(tables), format)


def print_filled(filled: Table, format: Format = "terminal") -> None:
    """Print a table with its numbers. Only a terminal limits its width."""
    from climb.bench.render import render, terminal_table

    console = Console(highlight=False)
    if format == "terminal" and console.is_terminal:
        console.print(terminal_table(filled))
        return
    print(render(filled, format), end="")
    for note in filled.notes if format == "csv" else ():  # a CSV file has no place for notes
        print_error(note)


VERBS = ("report", "serve", "table")
