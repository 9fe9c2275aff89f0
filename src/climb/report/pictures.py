"""What happened: accuracy by task, the matrix behind it, the memory's life, the losses."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from climb.report.chart import Curve, line_chart
from climb.report.heat_map import heat_map
from climb.report.record import Record
from climb.report.table import table

BATCHES = "stream mini-batches"
TWO_STORES = (
    ("stm_images", "Images in the short-term memory"),
    ("ltm_images", "Images in the long-term memory"),
    ("promoted", "Promotions to the long-term memory, cumulative"),
    ("threshold", "Novelty threshold (cosine distance)"),
)
ONE_STORE = (("stored", "Images stored"),)
LOSSES = (("objective", "Loss of the objective"), ("alignment", "Alignment loss, before its weight"))
TOTALS = (("promoted", "promotions"), ("merged", "merges"), ("evicted", "evictions"), ("pruned", "prunes"))


def accuracy(record: Record) -> str:
    """Three curves over the tasks, above the random encoder's line."""
    if not record.matrix:
        return _section("Accuracy by task", '<p class="quiet">No task has been evaluated yet.</p>')
    tasks = range(1, len(record.matrix) + 1)
    seen = [sum(row[:t]) / t for t, row in zip(tasks, record.matrix, strict=True)]
    everything = [sum(row) / len(row) for row in record.matrix]
    curves = [
        Curve(name="tasks seen", points=list(zip(tasks, seen, strict=True)), style="first"),
        Curve(name="classes seen, their own probe", points=list(zip(tasks, record.upto, strict=True)), style="second"),
        Curve(name="all tasks, unseen too", points=list(zip(tasks, everything, strict=True)), style="third"),
    ]
    chart = line_chart(
        curves, title="Linear probe accuracy in percent, by task", x_label="after task", level=record.floor
    )
    keys = [_key(f"line {curve.style}", curve.name) for curve in curves]
    if record.floor is not None:
        keys.append(_key("level", "random encoder"))
    caption = f'Linear probe accuracy in percent.<ul class="keys">{"".join(keys)}</ul>'
    return _section("Accuracy by task", _figure(chart, caption, kind="single"))


def matrix(record: Record) -> str:
    """The accuracy matrix as a heat map, and its values in a folded table."""
    if not record.matrix:
        return ""
    caption = (
        "Row: after which task. Column: on which task. Below the outlined diagonal: tasks seen before; above it: tasks "
        f"not seen yet. The colour goes from 0 to {max(max(row) for row in record.matrix):.1f} %."
    )
    tasks = range(1, len(record.matrix[0]) + 1)
    values = table(
        ([f"after {t}", *(f"{value:.1f}" for value in row)] for t, row in enumerate(record.matrix, start=1)),
        heading=["", *(f"on {task}" for task in tasks)],
        numbers=tasks,
    )
    return _section(
        "Accuracy matrix",
        _figure(heat_map(record.matrix, title="Accuracy after each task on each task, in percent"), caption),
        f"<details><summary>The matrix in numbers</summary>{values}</details>",
    )


def memory(record: Record) -> str:
    """What the memory held and did, mini-batch by mini-batch; nothing where nothing was ever stored."""
    two_stores = any(line.get("stm_images") is not None for line in record.training)
    stored = any(line.get("stored") for line in record.training)
    charts = _charts(record, TWO_STORES if two_stores else ONE_STORE, from_zero=True) if stored else []
    if not charts:
        note = "This method stores no images." if record.training else "The journal has nothing on the memory."
        return _section("The memory's life", f'<p class="quiet">{note}</p>')
    last = record.training[-1]
    totals = ", ".join(f"{last[key]:,} {word}" for key, word in TOTALS if last.get(key) is not None)
    said = f"Dashed: one task gives way to the next, which the method is not told. In all: {totals}."
    return _section(
        "The memory's life", f'<div class="grid-of">{"".join(charts)}</div>', f'<p class="quiet">{escape(said)}</p>'
    )


def losses(record: Record) -> str:
    """The training losses, as the journal sampled them."""
    charts = _charts(record, LOSSES, from_zero=False)
    if not charts:
        return _section("Losses", '<p class="quiet">The journal has no losses yet.</p>')
    return _section("Losses", f'<div class="grid-of">{"".join(charts)}</div>')


def _charts(record: Record, wanted: Sequence[tuple[str, str]], *, from_zero: bool) -> list[str]:
    """A chart for each key of the journal that has a value."""
    return [
        _figure(
            line_chart(
                [Curve(name=title, points=_points(record.training, key))],
                title=title,
                x_label=BATCHES,
                from_zero=from_zero,
                boundaries=record.boundaries,
            ),
            escape(title),
        )
        for key, title in wanted
        if any(line.get(key) is not None for line in record.training)
    ]


def _points(lines: list[dict[str, Any]], key: str) -> list[tuple[float, float | None]]:
    return [(line["batch"], line.get(key)) for line in lines]


def _section(heading: str, *parts: str) -> str:
    return "\n".join([f"<section><h2>{escape(heading)}</h2>", *parts, "</section>"])


def _figure(picture: str, caption: str, *, kind: str = "") -> str:
    attributes = f' class="{kind}"' if kind else ""
    return f"<figure{attributes}>{picture}<figcaption>{caption}</figcaption></figure>"


def _key(style: str, name: str) -> str:
    line = f'<line class="{style}" x1="1" y1="5" x2="31" y2="5"/>'
    return f'<li><svg class="key" viewBox="0 0 32 10" aria-hidden="true">{line}</svg>{escape(name)}</li>'
