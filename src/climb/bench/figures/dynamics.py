"""The life of the centroid memory over the stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from climb.bench.collect import Found
from climb.bench.figures.canvas import BOUNDARY, COLOURS, Canvas, label_of
from climb.errors import InputError
from climb.runs import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    ("images in the short-term memory", (("stm_images", ""),)),
    ("images in the long-term memory", (("ltm_images", ""),)),
    ("centroids", (("stm_centroids", "short-term"), ("ltm_centroids", "long-term"))),
    ("promotions, cumulative", (("promoted", ""),)),
    ("merges and prunes, cumulative", (("merged", "merges"), ("pruned", "prunes"))),
    ("novelty threshold (cosine distance)", (("threshold", ""),)),
)
"""Title of each panel, then what it draws: the name in the journal and its own name where there are two."""


def dynamics(runs: Sequence[Found]) -> Canvas:
    """Images, centroids, events and threshold over mini-batches, one colour a run; dashed lines are ends of tasks, in
    the run's colour where they are not the same for all.

    Runs whose memory has no centroids are left out.

    Raises:
        InputError: no run is left, or its journal is gone.
    """
    drawn = [(run, lines) for run in runs if (lines := _lines(run))]
    if not drawn:
        raise InputError(
            "figure-dynamics needs the journal.jsonl of a run with a centroid memory; none of the "
            f"{len(runs)} runs has one: run climb, and keep its run folder whole"
        )
    canvas = Canvas(2, 3, width=11.0, height=5.6)
    ends = [_ends(run) for run, _ in drawn]
    shared = all(own == ends[0] for own in ends)
    for panel, (title, series) in zip(canvas.panels, PANELS, strict=True):
        for number, (run, lines) in enumerate(drawn):
            for (key, name), style in zip(series, ("-", ":"), strict=False):
                _draw(panel, lines, key, colour=COLOURS[number % len(COLOURS)], style=style)
                panel.lines[-1].set_label(", ".join(filter(None, (_name(run, drawn), name))))
        for number, own in enumerate(ends[:1] if shared else ends):
            colour = BOUNDARY["color"] if shared else COLOURS[number % len(COLOURS)]
            for end in own:
                panel.axvline(end, **{**BOUNDARY, "color": colour})
        panel.set_title(title, fontsize=10)
        panel.set_ylim(0, None)
        if len(drawn) > 1 or len(series) > 1:
            panel.legend(frameon=False, fontsize=7)
    for panel in canvas.panels[3:]:
        panel.set_xlabel("stream mini-batch", fontsize=9)
    return canvas


def _lines(run: Found) -> list[dict[str, Any]]:
    lines = RunFolder(run.path).journal.read("train")
    return [line for line in lines if line.get("stm_images") is not None]


def _ends(run: Found) -> list[int]:
    """Mini-batches at which a task ended, but for the last."""
    lines = RunFolder(run.path).journal.read("evaluation")
    return [line["batch"] for line in lines if line["network"] == run.result["evaluated"]][:-1]


def _name(run: Found, drawn: Sequence[tuple[Found, object]]) -> str:
    """What tells a run from the others: nothing, if it is alone."""
    if len(drawn) == 1:
        return ""
    said = {
        "method": label_of(run.result["method"]),
        "tasks": f"{run.result['tasks']} tasks",
        "seed": f"seed {run.result['seed']}",
    }
    varying = [key for key in said if key == "seed" or len({other.result[key] for other, _ in drawn}) > 1]
    return ", ".join(said[key] for key in varying)


def _draw(panel: Axes, lines: list[dict[str, Any]], key: str, *, colour: str, style: str) -> None:
    values = [float("nan") if line.get(key) is None else line[key] for line in lines]
    panel.plot([line["batch"] for line in lines], values, color=colour, lw=1.2, ls=style)
