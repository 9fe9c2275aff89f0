"""The paper's figures from finished runs, as PNG and SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import compress, product
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from climb.bench.collect import FinishedRun
from climb.bench.layouts import find_layout
from climb.errors import InputError, find_named
from climb.report.memory_charts import PAPER_CHARTS
from climb.report.plots import draw_chart
from climb.report.record import read_record
from climb.runs import RunFolder
from climb.streams import Manifest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
"""The palette of Okabe and Ito, safe for colour-blind readers."""
MARKERS = "os^Dv<>P"
LABELS = {row.method: row.label for row in find_layout("table-regular").rows}
"""The paper's names of methods, in its order."""
UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


class Canvas:
    """A figure of rows by columns of panels."""

    def __init__(self, rows: int, columns: int, *, width: float, height: float) -> None:
        # The object-oriented interface has no global state and needs no display.
        from matplotlib.figure import Figure

        self.figure: Any = Figure(figsize=(width, height), layout="constrained", dpi=150)
        self.panels: list[Axes] = list(self.figure.subplots(rows, columns, squeeze=False).flat)
        for panel in self.panels:
            panel.spines[["top", "right"]].set_visible(False)

    def save(self, stem: Path) -> list[Path]:
        """Write ``stem``.png and ``stem``.svg. The same figure gives the same bytes."""
        import matplotlib

        png, svg = stem.parent / f"{stem.name}.png", stem.parent / f"{stem.name}.svg"
        # Text stays text, so that an SVG can be searched and edited.
        with matplotlib.rc_context({"svg.hashsalt": stem.name, "svg.fonttype": "none"}):
            self.figure.savefig(png)
            self.figure.savefig(svg, metadata={"Date": None})
        return [png, svg]


def draw_figure(name: str, runs: Sequence[FinishedRun], folder: str | Path) -> list[Path]:
    """Draw one of `FIGURES` into ``folder``, which is created if necessary; returns the two files."""
    draw = find_named("figure", name, FIGURES)
    if not runs:
        raise InputError(f"{name} needs at least one finished run; given none")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return draw(runs).save(folder / name)


def wallclock(runs: Sequence[FinishedRun]) -> Canvas:
    """Bars by method, one per task count: means over seeds. The lighter part is evaluation."""
    methods = _methods(runs)
    counts = sorted({run.result["tasks"] for run in runs})
    seconds = np.zeros((len(counts), 2, len(methods)))
    for (number, tasks), (place, method) in product(enumerate(counts), enumerate(methods)):
        if times := [run.result["seconds"] for run in _select(runs, method=method, tasks=tasks)]:
            seconds[number, :, place] = np.mean([(each["train"], each["evaluate"]) for each in times], axis=0)
    tallest = seconds.sum(axis=1).max()
    unit, word = next((unit for unit in UNITS if tallest >= unit[0]), UNITS[-1])
    canvas = Canvas(1, 1, width=max(5.0, 1.1 * len(methods) + 2.0), height=3.8)
    panel = canvas.panels[0]
    width = 0.8 / len(counts)
    for number, (train, evaluate) in enumerate(seconds / unit):
        places = np.arange(len(methods)) - 0.4 + width * (number + 0.5)
        colour = COLOURS[number % len(COLOURS)]
        panel.bar(places, train, 0.92 * width, color=colour, label=f"{counts[number]} tasks")
        panel.bar(places, evaluate, 0.92 * width, bottom=train, color=colour, alpha=0.4)
    panel.set_xticks(range(len(methods)), list(methods.values()))
    devices = sorted({str(run.result.get("versions", {}).get("device_name")) for run in runs})
    panel.set_ylabel(f"{word} (light: evaluation)")
    panel.set_title("time of a run on " + ", ".join(devices), fontsize=10)
    canvas.figure.legend(frameon=False, loc="outside lower center", ncols=len(counts))
    return canvas


def dynamics(runs: Sequence[FinishedRun]) -> Canvas:
    """Images, centroids, events and threshold of centroid memories over mini-batches, a colour per run.

    Dashed lines are the ends of tasks, in the run's colour if they differ between runs. Other memories are left out.

    Raises:
        InputError: no run is left, or its journal is missing.
    """
    drawn = [(run, record) for run in runs if (record := read_record(run.path)).latest("stm_images") is not None]
    if not drawn:
        raise InputError(
            "figure-dynamics needs the journal.jsonl of a run with a centroid memory; none of the "
            f"{len(runs)} runs has one: run climb, and keep its whole run folder"
        )
    canvas = Canvas(2, 3, width=11.0, height=5.6)
    names = _distinct_names([run for run, _ in drawn])
    named = [(name, record) for name, (_, record) in zip(names, drawn, strict=True)]
    for panel, chart in zip(canvas.panels, PAPER_CHARTS, strict=True):
        draw_chart(panel, chart, named, colours=COLOURS)
    for panel in canvas.panels[3:]:
        panel.set_xlabel("stream mini-batch", fontsize=9)
    return canvas


def irregular(runs: Sequence[FinishedRun]) -> Canvas:
    """A row of two panels per task count: classes per task, pooled over seeds, and accuracy by task.

    The dashed line in the first panel is the mean, which is the size of regular tasks. The second panel shows the
    accuracy on the tasks seen so far: the mean over seeds, with the standard deviation as a band.

    Raises:
        InputError: no run has irregular tasks.
    """
    chosen = [run for run in runs if run.config["stream"]["kind"] == "irregular"]
    if not chosen:
        raise InputError(f"figure-irregular needs runs with irregular tasks; none of the {len(runs)} given has them")
    counts = sorted({run.result["tasks"] for run in chosen})
    canvas = Canvas(len(counts), 2, width=9.6, height=3.3 * len(counts))
    for number, tasks in enumerate(counts):
        _draw_sizes(canvas.panels[2 * number], _select(chosen, tasks=tasks), tasks)
        _draw_accuracies(canvas.panels[2 * number + 1], _select(chosen, tasks=tasks))
    return canvas


def _draw_sizes(panel: Axes, runs: Sequence[FinishedRun], tasks: int) -> None:
    # Each seed once: all methods have its stream.
    by_seed = {run.result["seed"]: Manifest.load(RunFolder(run.path).scenario_path).tasks for run in runs}
    sizes = [len(task) for stream in by_seed.values() for task in stream]
    tally = Counter(sizes)
    panel.bar(list(tally), list(tally.values()), color=COLOURS[0], width=0.8)
    panel.axvline(mean(sizes), color="black", ls="--", lw=1)
    panel.set_xticks(range(1, max(sizes) + 1))
    panel.set(xlabel="classes in a task", ylabel="tasks")
    panel.set_title(f"{tasks} tasks, {len(by_seed)} seeds", fontsize=10)


def _draw_accuracies(panel: Axes, runs: Sequence[FinishedRun]) -> None:
    from matplotlib.ticker import MaxNLocator

    for number, (method, label) in enumerate(_methods(runs).items()):
        curves = np.array([seen_so_far(run) for run in _select(runs, method=method)])
        tasks = np.arange(1, curves.shape[1] + 1)
        middle = curves.mean(axis=0)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        panel.plot(tasks, middle, color=colour, marker=marker, ms=3, lw=1.2, label=label)
        if len(curves) > 1:
            spread = curves.std(axis=0, ddof=1)
            panel.fill_between(tasks, middle - spread, middle + spread, color=colour, alpha=0.15, lw=0)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.set(xlabel="after task", ylabel="accuracy, tasks seen so far (%)")
    panel.legend(frameon=False, fontsize=8)


def seen_so_far(run: FinishedRun) -> list[float]:
    """After each task, the mean accuracy over the tasks seen so far. Their mean over time is CA."""
    return [mean(row[: after + 1]) for after, row in enumerate(run.result["accuracy_matrix"])]


def _distinct_names(runs: Sequence[FinishedRun]) -> list[str]:
    """Method, tasks and seed of each run, as far as they vary; empty for a single run."""
    if len(runs) == 1:
        return [""]
    results = [run.result for run in runs]
    words = [(LABELS.get(r["method"], r["method"]), f"{r['tasks']} tasks", f"seed {r['seed']}") for r in results]
    shown = [len({*column}) > 1 or column[0].startswith("seed ") for column in zip(*words, strict=True)]
    return [", ".join(compress(own, shown)) for own in words]


def _select(runs: Sequence[FinishedRun], **values: object) -> list[FinishedRun]:
    """The runs whose results have these values."""
    return [run for run in runs if all(run.result[key] == value for key, value in values.items())]


def _methods(runs: Sequence[FinishedRun]) -> dict[str, str]:
    """The methods of some runs and their names: in the paper's order, then others by name."""
    methods = sorted({run.result["method"] for run in runs})
    return {name: LABELS.get(name, name) for name in sorted(methods, key=lambda name: [*LABELS, name].index(name))}


FIGURES: dict[str, Callable[[Sequence[FinishedRun]], Canvas]] = {
    f"figure-{draw.__name__}": draw for draw in (wallclock, dynamics, irregular)
}
