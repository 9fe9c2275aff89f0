"""The grids behind the paper's figures. Most of their runs are those of the tables."""

from __future__ import annotations

from dataclasses import replace

from climb.bench.cell import Layout, Metric
from climb.bench.grids.fill import fill
from climb.bench.grids.grid import Grid, Request
from climb.bench.grids.tables import irregular
from climb.bench.layouts import CLIMB, find_layout

MINUTES = Metric(key="seconds.total", label="minutes", higher_is_better=None, scale=1 / 60)
TRAINING = Metric(key="seconds.train", label="of them training", higher_is_better=None, scale=1 / 60)
DYNAMICS = (
    Metric(key="stored_images", label="stored images", digits=0, higher_is_better=None),
    Metric(key="memory.promoted", label="promotions", digits=0, higher_is_better=None),
    Metric(key="memory.merged", label="merges", digits=0, higher_is_better=None),
    Metric(key="memory.pruned", label="prunes", digits=0, higher_is_better=None),
    Metric(key="memory.threshold", label="threshold", digits=3, higher_is_better=None),
)


def figure_wallclock(request: Request) -> Grid:
    """How long each method takes on the streams of the table of regular tasks."""
    layout = find_layout("table-regular")
    layout = replace(
        layout,
        name="figure-wallclock",
        title="Wall-clock time",
        rows=tuple(row for row in layout.rows if row.kind == "method"),
        metrics=(MINUTES, TRAINING),
        note="times as they were: a run that shared its device took longer than it would alone",
    )
    return fill(request, layout, seeds=5)


def figure_dynamics(request: Request) -> Grid:
    """What CLIMB's memory does over one run."""
    layout = Layout(
        name="figure-dynamics",
        title="Dynamics of the memory",
        rows=(CLIMB,),
        columns=("20 tasks",),
        metrics=DYNAMICS,
    )
    return fill(request, layout, seeds=1)


def figure_irregular(request: Request) -> Grid:
    """Accuracy over the stream when tasks differ in size: the runs of the irregular table."""
    table = find_layout("table-irregular")
    layout = replace(table, name="figure-irregular", printed_in=table.name)
    return fill(request, layout, seeds=20, settings=irregular)
