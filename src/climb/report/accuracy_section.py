"""The section on accuracy: curves over the tasks, and the accuracy matrix as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from climb.report.chart import Curve, Points, styled_curves, svg_text
from climb.report.markup import chart_figure, figure, grid, remark, section, table
from climb.report.record import Record
from climb.runs.run_file_checks import is_number

CELL, LEFT, TOP, BOTTOM = 26, 28, 4, 20
WRITTEN = 20  # with at most so many tasks, each cell shows its value
ENLARGED = 1.9  # pixels per unit, if the page is wide enough
STRONG = 0.65  # cells of at least this opacity need text of the opposite colour


def accuracy_section(record: Record) -> str:
    """The curves, the heat map and the matrix in numbers; for a learner, its probes of labelled images."""
    if not record.labelled:
        return probe_section(record)
    if not record.matrix:
        return section("accuracy", "Accuracy", remark("No task has been evaluated yet."))
    highest = max(max(row) for row in record.matrix)
    caption = (
        "<b>Accuracy matrix.</b> Row: after this task. Column: on this task. Below the outlined diagonal are earlier "
        f"tasks, above it later ones. The colour scale goes from 0 to {highest:.1f} %."
    )
    tasks = record.names
    values = table(
        ([f"after {t}", *(f"{value:.1f}" for value in row)] for t, row in enumerate(record.matrix, start=1)),
        heading=["", *(f"on {task}" for task in tasks)],
        numbers=range(1, len(tasks) + 1),
    )
    by_task = chart_figure(
        accuracy_curves(record),
        title="Linear probe accuracy in percent, by task",
        caption="<b>Accuracy by task</b>, linear probe, in percent.",
        x_label="after task",
        floor=record.floor,
    )
    matrix = figure(
        heat_map(record.matrix, title="Accuracy after each task on each task, in percent", shown=record.shown), caption
    )
    numbers = f"<details><summary>The matrix in numbers</summary>{values}</details>"
    return section("accuracy", "Accuracy", grid([by_task, matrix]), numbers)


PROBES = {"knn": "k nearest neighbours", "ridge": "ridge probe"}
"""Probes of labelled images: key in the journal to heading."""


def probe_section(record: Record) -> str:
    """A curve for each probe of labelled images, with the start as a level. Nothing without such probes."""
    figures = []
    for key, name in PROBES.items():
        points = [(line["images"], line[key]) for line in record.probes if is_number(line.get(key))]
        levels = [line[f"start_{key}"] for line in record.probes if is_number(line.get(f"start_{key}"))]
        figures.append(
            chart_figure(
                styled_curves([(name, points)]),
                title=f"Accuracy on labelled images in percent, {name}",
                caption=f"<b>{name.capitalize()}</b>, accuracy on labelled images in percent.",
                x_label="images learned",
                from_zero=False,
                floor=levels[-1] if levels else None,
                floor_name="start",
            )
        )
    return section("accuracy", "Accuracy on labelled images", grid(figures)) if any(figures) else ""


def accuracy_on_tasks_seen(record: Record) -> Points:
    """Pairs (t, mean accuracy after segment t over the tasks seen)."""
    rows = zip(record.matrix, record.seen, strict=True)
    return [(t, sum(row[:seen]) / seen) for t, (row, seen) in enumerate(rows, start=1)]


def accuracy_curves(record: Record) -> list[Curve]:
    """Accuracy after each task: on the tasks seen, on the classes seen, on all tasks."""
    points = {
        "tasks seen": accuracy_on_tasks_seen(record),
        "classes seen, own probe": list(enumerate(record.upto, start=1)),
        "all tasks, unseen included": [(t, sum(row) / len(row)) for t, row in enumerate(record.matrix, start=1)],
    }
    return styled_curves(points.items())


def heat_map(matrix: Sequence[Sequence[float]], *, title: str, shown: Sequence[Sequence[int]] | None = None) -> str:
    """Draw an accuracy matrix as an SVG element; darker cells are higher.

    Row t is the evaluation after task t, column j is task j. There is at least one of each, and an unfinished run has
    fewer rows than columns. The scale goes from 0 to the highest value. The tasks that a segment shows are outlined:
    by default, the diagonal.

    >>> svg = heat_map([[50.0, 10.0], [40.0, 60.0]], title="accuracy")
    >>> svg.count("<rect"), "after task 2, on task 1: 40.0 %" in svg
    (4, True)
    """
    rows, columns = len(matrix), len(matrix[0])
    highest = max(max(max(row) for row in matrix), 1e-9)
    width, height = LEFT + columns * CELL + 2, TOP + rows * CELL + BOTTOM
    every = -(-columns // WRITTEN)  # of many tasks, only every second, third, ... is labelled
    parts = [
        f'<svg class="heat" viewBox="0 0 {width} {height}" width="{width * ENLARGED:.0f}" role="img" '
        f'aria-label="{escape(title)}">'
    ]
    bottom = TOP + rows * CELL + 14
    parts += [svg_text(LEFT + (j + 0.5) * CELL, bottom, "middle", j + 1) for j in range(0, columns, every)]
    parts += [svg_text(LEFT - 4, TOP + (t + 0.5) * CELL + 4, "end", t + 1) for t in range(0, rows, every)]
    for (t, j), value in np.ndenumerate(matrix):
        outlined = j in (shown[t] if shown else (t,))
        share, written = float(value) / highest, columns <= WRITTEN
        parts.append(_cell(t, j, float(value), share, written=written, outlined=outlined))
    return "\n".join([*parts, "</svg>"])


def _cell(t: int, j: int, value: float, share: float, *, written: bool, outlined: bool) -> str:
    x, y, side = LEFT + j * CELL, TOP + t * CELL, CELL - 2
    style = "value strong" if share >= STRONG else "value"
    number = svg_text(x + CELL / 2, y + CELL / 2 + 4, "middle", f"{value:.0f}", style=style) if written else ""
    return (
        f"<g><title>after task {t + 1}, on task {j + 1}: {value:.1f} %</title>"
        f'<rect class="{"cell learned" if outlined else "cell"}" x="{x + 1}" y="{y + 1}" width="{side}" '
        f'height="{side}" fill-opacity="{max(share, 0.02):.3f}"/>{number}</g>'
    )
