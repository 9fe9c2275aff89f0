"""What was learned: accuracy by task, and the matrix behind it."""

from __future__ import annotations

from html import escape

from climb.report.chart import Curve, line_chart
from climb.report.figure import figure, keys, quiet, section
from climb.report.heat_map import heat_map
from climb.report.record import Record
from climb.report.table import table


def learned(record: Record) -> str:
    """Curves over the tasks and the heat map, side by side; nothing for a stream without labels."""
    if not record.labelled:
        return ""
    if not record.matrix:
        return section("learned", "What was learned", quiet("No task has been evaluated yet."))
    return section(
        "learned",
        "What was learned",
        f'<div class="grid-of">{_accuracy(record)}{_matrix(record)}</div>',
        _values(record),
    )


def tasks_seen(record: Record) -> list[tuple[float, float | None]]:
    """After each task, the mean accuracy over the tasks seen so far."""
    return [(t, sum(row[:t]) / t) for t, row in enumerate(record.matrix, start=1)]


def _accuracy(record: Record) -> str:
    tasks = range(1, len(record.matrix) + 1)
    curves = [
        Curve(name="tasks seen", points=tasks_seen(record), style="first"),
        Curve(name="classes seen, their own probe", points=list(zip(tasks, record.upto, strict=True)), style="second"),
        Curve(
            name="all tasks, unseen too",
            points=[(t, sum(row) / len(row)) for t, row in zip(tasks, record.matrix, strict=True)],
            style="third",
        ),
    ]
    chart = line_chart(
        curves, title="Linear probe accuracy in percent, by task", x_label="after task", level=record.floor
    )
    level = "random encoder" if record.floor is not None else None
    return figure(chart, f"<b>Accuracy by task</b>, linear probe, in percent.{keys(curves, level=level)}")


def _matrix(record: Record) -> str:
    highest = max(max(row) for row in record.matrix)
    caption = (
        "Row: after which task. Column: on which task. Below the outlined diagonal: tasks seen before; above it: tasks "
        f"not seen yet. The colour goes from 0 to {highest:.1f} %."
    )
    picture = heat_map(record.matrix, title="Accuracy after each task on each task, in percent")
    return figure(picture, f"<b>Accuracy matrix.</b> {escape(caption)}")


def _values(record: Record) -> str:
    tasks = range(1, len(record.matrix[0]) + 1)
    values = table(
        ([f"after {t}", *(f"{value:.1f}" for value in row)] for t, row in enumerate(record.matrix, start=1)),
        heading=["", *(f"on {task}" for task in tasks)],
        numbers=tasks,
    )
    return f"<details><summary>The matrix in numbers</summary>{values}</details>"
