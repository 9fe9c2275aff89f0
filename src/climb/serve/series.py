"""The numbers of a journal's lines on training, as many as a chart can show."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from climb.runs.json_files import is_number

MOST = 1500  # lines kept of a long journal: several for each column of pixels of a chart
RECENT = 64  # the newest lines, always as they are
AT_ONCE = 256  # lines that are taken in together
MOST_KEYS = 100
Rows = NDArray[np.float64]


class Series:
    """Lines in little room. Of a long journal, each stretch of lines keeps the lowest and highest value of every key,
    so that a spike stays in the picture however many lines there are."""

    def __init__(self) -> None:
        self._places = {"batch": 0}
        self._kept: Rows = np.empty((0, 1))
        self._recent: list[array[float]] = []
        self._stride = 1  # lines of the journal for each one kept

    def add(self, line: dict[str, Any]) -> None:
        """Take in the numbers of a line, which has a "batch"."""
        row = array("d", [np.nan]) * len(self._places)
        for key, value in line.items():
            if is_number(value) and (place := self._place(key)) is not None:
                if place == len(row):
                    row.append(np.nan)
                row[place] = value
        self._recent.append(row)
        if len(self._recent) >= RECENT + max(AT_ONCE, 2 * self._stride):
            self._settle()

    def lines(self) -> list[dict[str, Any]]:
        """The lines that are kept, oldest first."""
        rows = [*self._kept.tolist(), *(row.tolist() for row in self._recent)]
        return [_line(self._places, row) for row in rows]

    def _place(self, key: str) -> int | None:
        if key not in self._places and len(self._places) < MOST_KEYS:
            self._places[sys.intern(key)] = len(self._places)
        return self._places.get(key)

    def _settle(self) -> None:
        """Take in all but the newest lines."""
        size = 2 * self._stride
        count = (len(self._recent) - RECENT) // size * size
        rows = _widened(self._recent[:count], len(self._places))
        del self._recent[:count]
        new = rows if self._stride == 1 else condensed(rows, size)
        self._kept = np.concatenate([_widened(self._kept, len(self._places)), new])
        while len(self._kept) > MOST:
            whole = len(self._kept) // 4 * 4
            self._kept = np.concatenate([condensed(self._kept[:whole], 4), self._kept[whole:]])
            self._stride *= 2


def condensed(rows: Rows, size: int) -> Rows:
    """Two rows for each ``size`` of them: the lowest and the highest value of every column, as they came.

    >>> condensed(np.array([[1.0, 5.0], [2.0, 9.0], [3.0, np.nan], [4.0, 2.0]]), 4)
    array([[1., 9.],
           [4., 2.]])
    """
    groups = rows.reshape(-1, size, rows.shape[1])
    empty = np.isnan(groups)
    lowest = np.where(empty, np.inf, groups).argmin(axis=1)
    highest = np.where(empty, -np.inf, groups).argmax(axis=1)
    chosen = np.stack([np.minimum(lowest, highest), np.maximum(lowest, highest)], axis=1)
    return np.take_along_axis(groups, chosen, axis=1).reshape(-1, rows.shape[1])


def _widened(rows: Iterable[Sequence[float]] | Rows, width: int) -> Rows:
    """Rows with a column for every key; older ones have fewer."""
    found = [np.asarray(row) for row in rows]
    wide = np.full((len(found), width), np.nan)
    for place, row in enumerate(found):
        wide[place, : len(row)] = row
    return wide


def _line(places: dict[str, int], row: Sequence[float]) -> dict[str, Any]:
    numbers = {key: value for key, value in zip(places, row, strict=False) if value == value}  # NaN: it had none
    return {**numbers, "batch": int(row[0]), "event": "train"}
