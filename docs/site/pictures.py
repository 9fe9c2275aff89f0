"""The pictures of `how-the-memory-works.md`, drawn from a finished run.

climb run
python docs/site/pictures.py runs/demo-default-0
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from climb.memory.snapshot import Group, MemorySnapshot
from climb.runs.folder import RunFolder

IMAGES = Path(__file__).parents[1] / "images"
SHORT, LONG, LINE, GREY = "#e08a2e", "#3d8f5f", "#3b6fb6", "#888888"
ROWS, SHOWN = 6, 8  # centroids of each kind, and images of each, that are shown: more would be a large file


def main() -> None:
    folder = RunFolder(sys.argv[1])
    memory = folder.load_memory()
    if memory is None or folder.result() is None:
        sys.exit(f"{folder.path} holds no finished run with a memory")
    learner = json.loads(folder.config_path.read_text(encoding="utf-8"))["config"]["learner"]
    capacity: int = learner["memory"]["capacity"]
    ends = sorted({line["batch"] for line in folder.journal.read("evaluation")})
    draw_life(folder.journal.read("train"), ends, capacity)
    draw_centroids(memory)
    draw_origin(memory, [end * learner["stream_batch"] for end in ends], capacity)


def draw_life(lines: list[dict[str, Any]], ends: list[int], capacity: int) -> None:
    """Images by tier, what happened to centroids, and the threshold, over the stream."""
    figure, axes = _figure(1, 3, (12.0, 3.4))
    batches = [line["batch"] for line in lines]

    def column(key: str) -> list[float]:
        return [float("nan") if line[key] is None else line[key] for line in lines]

    tiers = column("ltm_images"), column("stm_images")
    axes[0].stackplot(batches, *tiers, colors=[LONG, SHORT], labels=["long-term", "short-term"])
    axes[0].axhline(capacity, color="black", lw=1)
    axes[0].annotate(f"the bound: {capacity}", (batches[0], capacity), (2, 3), textcoords="offset points", fontsize=8)
    axes[0].set_title("images in the memory")
    axes[0].legend(loc="lower right", fontsize=8)
    for key, colour in (("promoted", LONG), ("merged", LINE), ("pruned", SHORT)):
        axes[1].plot(batches, column(key), color=colour, label=key)
    axes[1].set_title("what happened, so far")
    axes[1].legend(frameon=False, fontsize=8)
    axes[2].plot(batches, column("threshold"), color=LINE)
    axes[2].set_title("novelty threshold (cosine distance)")
    for ax in axes:
        for end in ends[:-1]:
            ax.axvline(end, color=GREY, lw=0.7, ls="--")
        ax.set(xlabel="stream mini-batch", ylim=(0, None), xlim=(0, batches[-1]))
    _save(figure, "memory-life.png")


def draw_centroids(memory: MemorySnapshot) -> None:
    """A row of images, the first of each, for some long-term and some short-term centroids."""
    kinds = ("long-term", "short-term")
    groups = [[group for group in memory.groups if group.tier == kind] for kind in kinds]
    chosen = [_spread(kind, ROWS) for kind in groups]
    widest = [max(len(group.images[:SHOWN]) for group in kind) for kind in chosen]
    figure, axes = _figure(1, 2, (9.0, 2.8), width_ratios=widest)
    side = memory.images.shape[-1]
    for ax, kind, some, all_of_them, colour, wide in zip(
        axes, kinds, chosen, groups, (LONG, SHORT), widest, strict=True
    ):
        sheet = np.full((ROWS * (side + 2), wide * (side + 2), 3), 255, dtype=np.uint8)
        for row, group in enumerate(some):
            for place, image in enumerate(group.images[:SHOWN].permute(0, 2, 3, 1).numpy()):
                top, left = row * (side + 2), place * (side + 2)
                sheet[top : top + side, left : left + side] = image
        ax.imshow(sheet, interpolation="nearest")
        ax.set_title(f"{len(some)} of {len(all_of_them)} {kind} centroids", color=colour)
        ax.set_yticks([row * (side + 2) + side / 2 for row in range(len(some))], [_caption(group) for group in some])
        ax.set_xticks([])
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0, labelsize=8)
    _save(figure, "memory-centroids.png")


def draw_origin(memory: MemorySnapshot, ends: list[int], capacity: int) -> None:
    """Which task the stored images came with, beside what the last N images would be; tasks end before ``ends``."""
    edges = [0, *ends]
    figure, axes = _figure(1, 1, (7.2, 3.0))
    tasks = np.arange(1, len(ends) + 1)
    below = np.zeros(len(ends))
    for kind, colour in (("long-term", LONG), ("short-term", SHORT)):
        numbers = [number for group in memory.groups if group.tier == kind for number in group.numbers]
        counts = np.histogram(numbers, bins=edges)[0]
        axes[0].bar(tasks - 0.2, counts, 0.4, bottom=below, color=colour, label=f"CLIMB, {kind}")
        below = below + counts
    last = np.histogram(np.arange(memory.seen - capacity, memory.seen), bins=edges)[0]
    axes[0].bar(tasks + 0.2, last, 0.4, color=GREY, label=f"the last {capacity} images (FIFO)")
    axes[0].set(xlabel="task the image came with", ylabel="images stored at the end")
    axes[0].set_xticks(tasks)
    axes[0].legend(frameon=False, fontsize=8)
    _save(figure, "memory-origin.png")


def _spread(groups: list[Group], number: int) -> list[Group]:
    """So many of the groups, evenly over them."""
    rows = np.linspace(0, len(groups) - 1, min(number, len(groups))).round().astype(int)
    return [groups[row] for row in rows]


def _caption(group: Group) -> str:
    count = "1 image" if len(group.images) == 1 else f"{len(group.images)} images"
    return f"{count}, number\n{group.born} to {group.updated}"


def _figure(rows: int, columns: int, size: tuple[float, float], **layout: Any) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=size, layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **layout)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, list(axes.flat)


def _save(figure: Figure, name: str) -> None:
    figure.savefig(IMAGES / name)
    print(IMAGES / name)


if __name__ == "__main__":
    main()
