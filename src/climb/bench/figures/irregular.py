"""Streams whose tasks differ in size: how they differ, and how accuracy grows along them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import mean
from typing import TYPE_CHECKING

import numpy as np

from climb.bench.collect import Found
from climb.bench.figures.canvas import COLOURS, MARKERS, Canvas, in_order, label_of
from climb.errors import InputError
from climb.runs import RunFolder
from climb.streams import Manifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def irregular(runs: Sequence[Found]) -> Canvas:
    """A row of two panels for each task count: classes per task, pooled over seeds, and accuracy by task.

    The dashed line of the first is the mean, the size of every task of a regular stream. The second shows the mean
    over seeds of the accuracy on the tasks seen so far, with the standard deviation as a band.

    Raises:
        InputError: no run has irregular tasks.
    """
    chosen = [run for run in runs if run.config["stream"]["kind"] == "irregular"]
    if not chosen:
        raise InputError(f"figure-irregular needs runs with irregular tasks; none of the {len(runs)} given has them")
    counts = sorted({run.result["tasks"] for run in chosen})
    canvas = Canvas(len(counts), 2, width=9.6, height=3.3 * len(counts))
    for number, tasks in enumerate(counts):
        alike = [run for run in chosen if run.result["tasks"] == tasks]
        _sizes(canvas.panels[2 * number], alike, tasks)
        _accuracies(canvas.panels[2 * number + 1], alike)
    return canvas


def _sizes(panel: Axes, runs: Sequence[Found], tasks: int) -> None:
    """Each seed once: all methods have its stream."""
    by_seed = {run.result["seed"]: Manifest.load(RunFolder(run.path).scenario_path).tasks for run in runs}
    sizes = [len(task) for stream in by_seed.values() for task in stream]
    tally = Counter(sizes)
    panel.bar(list(tally), [tally[size] for size in tally], color=COLOURS[0], width=0.8)
    panel.axvline(mean(sizes), color="black", ls="--", lw=1)
    panel.set_xticks(range(1, max(sizes) + 1))
    panel.set_xlabel("classes in a task")
    panel.set_ylabel("tasks")
    panel.set_title(f"{tasks} tasks, {len(by_seed)} seeds", fontsize=10)


def _accuracies(panel: Axes, runs: Sequence[Found]) -> None:
    from matplotlib.ticker import MaxNLocator

    for number, method in enumerate(in_order({run.result["method"] for run in runs})):
        curves = np.array([seen_so_far(run) for run in runs if run.result["method"] == method])
        after = np.arange(1, curves.shape[1] + 1)
        middle = curves.mean(axis=0)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        panel.plot(after, middle, color=colour, marker=marker, ms=3, lw=1.2, label=label_of(method))
        if len(curves) > 1:
            spread = curves.std(axis=0, ddof=1)
            panel.fill_between(after, middle - spread, middle + spread, color=colour, alpha=0.15, lw=0)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set_xlabel("after task")
    panel.set_ylabel("accuracy, tasks seen so far (%)")
    panel.legend(frameon=False, fontsize=8)


def seen_so_far(run: Found) -> list[float]:
    """After each task, the mean accuracy over the tasks seen so far; their mean over time is CA."""
    return [mean(row[: after + 1]) for after, row in enumerate(run.result["accuracy_matrix"])]
