"""Plots of runs with matplotlib: `accuracy.png` and `memory.png`, and the curves of figures on several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from climb.report.accuracy_section import accuracy_curves
from climb.report.chart import Curve
from climb.report.memory_charts import PAPER_CHARTS, Chart
from climb.report.record import Record, read_record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIRST, SECOND, THIRD = "#3b6fb6", "#e08a2e", "#3d8f5f"
BOUNDARY: dict[str, Any] = {"color": "#888888", "lw": 0.6, "ls": "--", "alpha": 0.7, "zorder": 0}
"""Style of the line at the end of a task."""
RUN_CHARTS = {"stm_images": SECOND, "ltm_images": THIRD, "promoted": THIRD, "threshold": FIRST}
"""Keys of the journal in `memory.png`, with their colours."""


def draw_plots(folder: Path) -> list[Path]:
    """Write `accuracy.png` and, for a memory with centroids, `memory.png` into a run folder; the paths written.

    Raises:
        InputError: the folder holds no run.
    """
    record = read_record(folder)
    written = [_draw_accuracy(record, folder / "accuracy.png")] if record.matrix else []
    if record.latest("stm_images") is not None:
        margins = {"left": 0.75 / 9.6, "right": 9.45 / 9.6, "bottom": 0.55 / 6, "top": 5.6 / 6}
        figure, panels = _figure(2, 2, (9.6, 6.0), **margins, wspace=1.7 / 7.85, hspace=1.7 / 4.2)
        charts = [chart for chart in PAPER_CHARTS if next(iter(chart.curves)) in RUN_CHARTS]
        for panel, chart, colour in zip(panels, charts, RUN_CHARTS.values(), strict=True):
            draw_chart(panel, chart, [("", record)], colours=[colour])
            panel.set_title(chart.title, fontsize=10, y=1.0)
            panel.set_xlabel("stream mini-batch", fontsize=8)
        figure.savefig(folder / "memory.png")
        written.append(folder / "memory.png")
    return written


def draw_chart(panel: Axes, chart: Chart, runs: Sequence[tuple[str, Record]], *, colours: Sequence[str]) -> None:
    """Draw the curves of one chart over the stream, one colour per run, with a legend for several curves.

    Dashed lines mark the ends of tasks, in the colour of the run if they differ between runs.

    Args:
        panel: where to draw.
        chart: what to draw.
        runs: names in the legend, and records.
        colours: one per run, repeated if there are more runs.
    """
    boundaries = [record.boundaries for _, record in runs]
    shared = all(places == boundaries[0] for places in boundaries)
    for number, (run, record) in enumerate(runs):
        colour = colours[number % len(colours)]
        for (key, name), style in zip(chart.curves.items(), ("-", ":"), strict=False):
            label = ", ".join(filter(None, (run, name)))
            curve = Curve(name=label, points=record.points(key))
            panel.plot(*curve.array.T, color=colour, lw=1.2, ls=style, label=label)
    for number, places in enumerate(boundaries[:1] if shared else boundaries):
        colour = BOUNDARY["color"] if shared else colours[number % len(colours)]
        for place in places:
            panel.axvline(place, **{**BOUNDARY, "color": colour})
    panel.set_title(chart.title, fontsize=10)
    panel.set_ylim(0, None)
    if len(runs) > 1 or len(chart.curves) > 1:
        panel.legend(frameon=False, fontsize=7)


def _draw_accuracy(record: Record, path: Path) -> Path:
    from matplotlib.ticker import MaxNLocator

    figure, (panel,) = _figure(1, 1, (6.4, 4.0), left=0.75 / 6.4, right=6.25 / 6.4, bottom=0.55 / 4, top=3.6 / 4)
    for curve, style, colour in zip(accuracy_curves(record), ("o-", "s--", "^:"), (FIRST, SECOND, THIRD), strict=True):
        panel.plot(*curve.array.T, style, color=colour, label=curve.name)
    if record.floor is not None:
        panel.axhline(record.floor, color=BOUNDARY["color"], lw=1, label="random encoder")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set(xlabel="after task", ylabel="linear probe accuracy (%)", ylim=(0, None))
    panel.set_title(f"{record.method} on {record.data}, {record.evaluated}", y=1.0)
    panel.legend(frameon=False, fontsize=8)
    figure.savefig(path)
    return path


def _figure(rows: int, columns: int, size: tuple[float, float], **margins: float) -> tuple[Any, list[Axes]]:
    """A figure of a size in inches. The margins and gaps are fractions, as matplotlib wants them."""
    # Automatic layout would draw everything twice: half the time of a short run.
    # The object-oriented interface: pyplot would keep global state and might look for a display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=120)
    panels = list(figure.subplots(rows, columns, squeeze=False, gridspec_kw=margins).flat)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, panels
