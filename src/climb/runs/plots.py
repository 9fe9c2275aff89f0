"""Pictures of a run: accuracy by task, and the memory's life as in the paper's appendix."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from climb.runs.journal import Journal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEFT, RIGHT, BOTTOM, TOP, BETWEEN = 0.75, 0.15, 0.55, 0.4, 0.85
"""Inches around axes. matplotlib would find them by drawing everything twice: of a short run, half of its time."""
STREAM, MEMORY_SHORT, MEMORY_LONG, FLOOR = "#3b6fb6", "#e08a2e", "#3d8f5f", "#888888"


def draw_plots(journal: Journal, result: dict[str, Any], folder: Path) -> list[Path]:
    """Write `accuracy.png` and, for a memory with centroids, `memory.png`; the paths written."""
    written = [_accuracy(result, folder / "accuracy.png")]
    lines = [line for line in journal.read("train") if line.get("stm_images") is not None]
    if lines:
        ends = [line["batch"] for line in journal.read("evaluation") if line["network"] == result["evaluated"]]
        written.append(_memory(lines, ends, folder / "memory.png"))
    return written


def _accuracy(result: dict[str, Any], path: Path) -> Path:
    from matplotlib.ticker import MaxNLocator

    figure, axes = _figure(1, 1, (6.4, 4.0))
    ax = axes[0]
    matrix = result["accuracy_matrix"]
    tasks = range(1, len(matrix) + 1)
    seen = [sum(row[: t + 1]) / (t + 1) for t, row in enumerate(matrix)]
    ax.plot(tasks, seen, "o-", color=STREAM, label="tasks seen, one probe for all classes")
    ax.plot(tasks, result["accuracy_upto"], "s--", color=MEMORY_SHORT, label="classes seen, their own probe")
    ax.plot(tasks, [sum(row) / len(row) for row in matrix], "^:", color=MEMORY_LONG, label="all tasks, unseen too")
    ax.axhline(result["random_encoder_accuracy"], color=FLOOR, lw=1, label="random encoder")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="after task", ylabel="linear probe accuracy (%)", ylim=(0, None))
    ax.set_title(f"{result['method']} ({result['preset']}) on {result['dataset']}, {result['evaluated']}", y=1.0)
    ax.legend(frameon=False, fontsize=8)
    return _save(figure, path)


def _memory(lines: list[dict[str, Any]], ends: list[int], path: Path) -> Path:
    figure, axes = _figure(2, 2, (9.6, 6.0))
    batches = [line["batch"] for line in lines]
    for ax, key, title, colour in (
        (axes[0], "stm_images", "images in the short-term memory", MEMORY_SHORT),
        (axes[1], "ltm_images", "images in the long-term memory", MEMORY_LONG),
        (axes[2], "promoted", "promotions, cumulative", MEMORY_LONG),
        (axes[3], "threshold", "novelty threshold (cosine distance)", STREAM),
    ):
        values = [float("nan") if line[key] is None else line[key] for line in lines]
        ax.plot(batches, values, color=colour, lw=1.2)
        for end in ends[:-1]:
            ax.axvline(end, color=FLOOR, lw=0.6, ls="--", alpha=0.6)
        ax.set_title(title, fontsize=10, y=1.0)
        ax.set_xlabel("stream mini-batch", fontsize=8)
        ax.set_ylim(0, None)
    return _save(figure, path)


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, list[Axes]]:
    # The object-oriented interface: no pyplot, so no global state and no display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width, height = size
    figure = Figure(figsize=size, dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(
        left=LEFT / width,
        right=1 - RIGHT / width,
        bottom=BOTTOM / height,
        top=1 - TOP / height,
        wspace=_between(width - LEFT - RIGHT, columns),
        hspace=_between(height - BOTTOM - TOP, rows),
    )
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, list(axes.flat)


def _between(inches: float, axes: int) -> float:
    """The room between so many axes side by side, as matplotlib wants it: in parts of the length of one."""
    return BETWEEN * axes / (inches - BETWEEN * (axes - 1))


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path)
    return path
