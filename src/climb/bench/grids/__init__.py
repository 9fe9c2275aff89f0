"""Grids of runs: one per table and figure of the paper, and one that explains its code."""

from __future__ import annotations

from climb.bench.grids.figures import figure_dynamics, figure_irregular, figure_wallclock
from climb.bench.grids.grid import Builder, Entry, Grid, Request
from climb.bench.grids.tables import (
    table_ablation,
    table_diversity,
    table_faults,
    table_forgetting,
    table_irregular,
    table_pruning,
    table_regular,
    table_sensitivity_architecture,
    table_sensitivity_update,
    table_simsiam,
)
from climb.errors import unknown
from climb.plugins import first_line

__all__ = ["GRIDS", "Builder", "Entry", "Grid", "Request", "build_grid", "describe"]

GRIDS: dict[str, Builder] = {
    build.__name__.replace("_", "-"): build
    for build in (
        table_regular,
        table_irregular,
        table_ablation,
        table_sensitivity_architecture,
        table_sensitivity_update,
        table_pruning,
        table_diversity,
        table_simsiam,
        table_forgetting,
        table_faults,
        figure_wallclock,
        figure_dynamics,
        figure_irregular,
    )
}


def build_grid(name: str, request: Request) -> Grid:
    """The grid called ``name``.

    >>> grid = build_grid("table-regular", Request(methods=("climb",)))
    >>> len(grid.entries), grid.layout.columns
    (15, ('20 tasks', '50 tasks', '100 tasks'))
    """
    if name not in GRIDS:
        raise unknown("grid", name, GRIDS)
    return GRIDS[name](request)


def describe(name: str) -> str:
    """One line about a grid."""
    return first_line(GRIDS[name].__doc__)
