"""Runs beside each other: their numbers, their curves, and where their settings differ."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from climb.errors import InputError
from climb.evaluation.accuracies import ACCURACIES
from climb.report.chart import Curve, line_chart
from climb.report.figure import figure, keys, quiet, section
from climb.report.learned import tasks_seen
from climb.report.lived import BATCHES
from climb.report.record import Record
from climb.report.table import flattened, table

STYLES = ("first", "second", "third", "fourth", "fifth", "sixth")
NUMBERS = {
    **{key: (accuracy.heading, ".2f") for key, accuracy in ACCURACIES.items()},
    "cbp": ("CBP", ",.0f"),
    "forward_only_images": ("Forward only", ",.0f"),
    "stored_images": ("Stored images", ",.0f"),
    "memory_bytes": ("Memory, bytes", ",.0f"),
}
CURVES = (
    ("objective", "Loss of the objective"),
    ("effective_rank", "Effective rank of the embeddings"),
    ("stored", "Images stored"),
    ("threshold", "Novelty threshold (cosine distance)"),
)


def beside(records: Sequence[Record], *, heading: str = "Beside other runs") -> str:
    """The section that compares runs, the first one's page being the one it is on; nothing for one run alone."""
    if len(records) < 2:
        return ""
    if len(records) > len(STYLES):
        raise InputError(
            f"at most {len(STYLES)} runs can be told apart in a chart; given {len(records)}: leave some out"
        )
    names = distinct_names([record.path for record in records])
    charts = [chart for chart in (_accuracy(records, names), *_curves(records, names)) if chart]
    return section(
        "beside",
        heading,
        _numbers(records, names),
        f'<div class="grid-of">{"".join(charts)}</div>' if charts else quiet("There is nothing to draw yet."),
        _differences(records, names),
    )


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart.

    >>> distinct_names([Path("runs/a/0"), Path("runs/b/0"), Path("runs/c")])
    ['a/0', 'b/0', 'c']
    """
    whole = [path.resolve() for path in paths]
    names = []
    for path in whole:
        ends = ["/".join(path.parts[-length:]) for length in range(1, len(path.parts) + 1)]
        alone = (end for end in ends if sum(other.as_posix().endswith(f"/{end}") for other in whole) == 1)
        names.append(next(alone, str(path)))
    return names


def _numbers(records: Sequence[Record], names: Sequence[str]) -> str:
    rows = [["Method", *(record.method for record in records)], ["Data", *(record.data for record in records)]]
    results = [record.result or {} for record in records]
    for key, (name, form) in NUMBERS.items():
        if any(result.get(key) is not None for result in results):
            rows.append([name, *(_said(result.get(key), form) for result in results)])
    if any("seconds" in result for result in results):
        times = [result.get("seconds", {}).get("train") for result in results]
        rows.append(["Training, seconds", *(_said(time, ",.1f") for time in times)])
    unfinished = [name for name, record in zip(names, records, strict=True) if record.labelled and not record.result]
    note = quiet(f"Not finished: {', '.join(unfinished)}.") if unfinished else ""
    return table(rows, heading=["", *names], numbers=range(1, len(names) + 1)) + note


def _said(value: Any, form: str) -> str:
    return "" if value is None else format(value, form)


def _accuracy(records: Sequence[Record], names: Sequence[str]) -> str:
    curves = [
        Curve(name=name, points=tasks_seen(record), style=style)
        for record, name, style in zip(records, names, STYLES, strict=False)
        if record.matrix
    ]
    if not curves:
        return ""
    title = "Accuracy on the tasks seen, in percent"
    chart = line_chart(curves, title=title, x_label="after task")
    return figure(chart, f"<b>{title}</b>, one probe for all classes.{keys(curves, alone=True)}")


def _curves(records: Sequence[Record], names: Sequence[str]) -> list[str]:
    figures = []
    for key, title in CURVES:
        curves = [
            Curve(name=name, points=record.points(key), style=style)
            for record, name, style in zip(records, names, STYLES, strict=False)
            if record.has(key)
        ]
        if curves:
            chart = line_chart(curves, title=f"{title}, beside", x_label=BATCHES, from_zero=key == "stored")
            figures.append(figure(chart, f"{escape(title)}{keys(curves, alone=True)}"))
    return figures


def _differences(records: Sequence[Record], names: Sequence[str]) -> str:
    """The settings that are not the same in all runs."""
    settings = [dict(flattened(record.config)) for record in records]
    every = dict.fromkeys(key for found in settings for key in found)
    rows = [
        [key, *(found.get(key, "") for found in settings)]
        for key in every
        if len({found.get(key) for found in settings}) > 1
    ]
    if not rows:
        return quiet("All settings are the same.")
    return f"<h3>Settings that differ</h3>{table(rows, heading=['', *names])}"
