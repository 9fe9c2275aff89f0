"""The accuracy matrix as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from climb.errors import InputError

CELL, LEFT, TOP, BOTTOM = 26, 28, 4, 20
WRITTEN = 20  # up to so many tasks a cell has room for its value
ENLARGED = 1.9  # pixels a unit, where the page has room
STRONG = 0.65  # from this opacity on, text needs the opposite colour


def heat_map(matrix: Sequence[Sequence[float]], *, title: str) -> str:
    """An SVG element: ``matrix[t][j]`` in row t (after task t) and column j (on task j), darker is higher.

    There may be fewer rows than columns: a run that is not finished. The scale goes from 0 to the highest value. The
    diagonal, the task just learned, is outlined.

    >>> svg = heat_map([[50.0, 10.0], [40.0, 60.0]], title="accuracy")
    >>> svg.count("<rect"), "after task 2, on task 1: 40.0 %" in svg
    (4, True)
    """
    if not matrix or not matrix[0] or any(len(row) != len(matrix[0]) for row in matrix):
        raise InputError("a heat map needs at least one row, and rows of one length; give one value per task")
    rows, columns = len(matrix), len(matrix[0])
    highest = max(max(max(row) for row in matrix), 1e-9)
    width, height = LEFT + columns * CELL + 2, TOP + rows * CELL + BOTTOM
    cells = (
        _cell(t, j, value, value / highest, written=columns <= WRITTEN)
        for t, row in enumerate(matrix)
        for j, value in enumerate(row)
    )
    return "\n".join(
        [
            f'<svg class="heat" viewBox="0 0 {width} {height}" width="{width * ENLARGED:.0f}" role="img" '
            f'aria-label="{escape(title)}">',
            *_labels(rows, columns),
            *cells,
            "</svg>",
        ]
    )


def _labels(rows: int, columns: int) -> list[str]:
    every = -(-columns // WRITTEN)  # where there are many tasks, every second, third, ... number
    bottom = TOP + rows * CELL + 14
    return [
        *(
            f'<text x="{LEFT + (j + 0.5) * CELL:g}" y="{bottom}" text-anchor="middle">{j + 1}</text>'
            for j in range(0, columns, every)
        ),
        *(
            f'<text x="{LEFT - 4}" y="{TOP + (t + 0.5) * CELL + 4:g}" text-anchor="end">{t + 1}</text>'
            for t in range(0, rows, every)
        ),
    ]


def _cell(t: int, j: int, value: float, share: float, *, written: bool) -> str:
    x, y = LEFT + j * CELL, TOP + t * CELL
    side = CELL - 2
    kind = "cell learned" if t == j else "cell"
    text = ""
    if written:
        contrast = "value strong" if share >= STRONG else "value"
        text = (
            f'<text class="{contrast}" x="{x + CELL / 2:g}" y="{y + CELL / 2 + 4:g}" '
            f'text-anchor="middle">{value:.0f}</text>'
        )
    return (
        f"<g><title>after task {t + 1}, on task {j + 1}: {value:.1f} %</title>"
        f'<rect class="{kind}" x="{x + 1}" y="{y + 1}" width="{side}" height="{side}" '
        f'fill-opacity="{max(share, 0.02):.3f}"/>{text}</g>'
    )
