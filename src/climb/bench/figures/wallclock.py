"""How long each method takes, training and evaluating."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from climb.bench.collect import Found
from climb.bench.figures.canvas import COLOURS, Canvas, in_order, label_of

UNITS = ((3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def wallclock(runs: Sequence[Found]) -> Canvas:
    """Bars by method, one for each task count; the lighter part is evaluation. Bars are means over seeds."""
    methods = in_order({run.result["method"] for run in runs})
    counts = sorted({run.result["tasks"] for run in runs})
    seconds = {
        (method, tasks, part): _mean_seconds(runs, method, tasks, part)
        for method in methods
        for tasks in counts
        for part in ("train", "evaluate")
    }
    tallest = max(seconds[m, t, "train"] + seconds[m, t, "evaluate"] for m in methods for t in counts)
    unit, word = next((unit for unit in UNITS if tallest >= unit[0]), UNITS[-1])
    canvas = Canvas(1, 1, width=max(5.0, 1.1 * len(methods) + 2.0), height=3.8)
    panel = canvas.panels[0]
    width = 0.8 / len(counts)
    for number, tasks in enumerate(counts):
        places = [place - 0.4 + width * (number + 0.5) for place in range(len(methods))]
        train = [seconds[method, tasks, "train"] / unit for method in methods]
        evaluate = [seconds[method, tasks, "evaluate"] / unit for method in methods]
        colour = COLOURS[number % len(COLOURS)]
        panel.bar(places, train, 0.92 * width, color=colour, label=f"{tasks} tasks")
        panel.bar(places, evaluate, 0.92 * width, bottom=train, color=colour, alpha=0.4)
    panel.set_xticks(range(len(methods)), [label_of(method) for method in methods])
    panel.set_ylabel(f"{word} (light: evaluation)")
    devices = sorted({str(run.result.get("versions", {}).get("device_name")) for run in runs})
    panel.set_title("time of a run on " + ", ".join(devices), fontsize=10)
    canvas.figure.legend(frameon=False, loc="outside lower center", ncols=len(counts))
    return canvas


def _mean_seconds(runs: Sequence[Found], method: str, tasks: int, part: str) -> float:
    found = [
        float(run.result["seconds"][part])
        for run in runs
        if run.result["method"] == method and run.result["tasks"] == tasks
    ]
    return mean(found) if found else 0.0
