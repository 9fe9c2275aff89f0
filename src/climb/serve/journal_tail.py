"""Follow a growing journal: read only what is new, and keep as many values as a chart can show."""

from __future__ import annotations

import os
import sys
from array import array
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from climb.report.record import NOT_TRAINING
from climb.runs import RunFolder
from climb.runs.journal import parsed
from climb.runs.run_file_checks import is_number

EVENTS = {"floor": 100, "evaluation": 5000, "probe": 5000, "warning": 100, "session": 1}  # newest lines kept, by kind
SESSION = ("start", "end")
PIECE = 2**20  # bytes read at once; a longer line is skipped
MARK = 4096  # bytes before the current position, to recognise the journal
MOST_ROWS = 1500  # of a long journal: several for each pixel column of a chart
RECENT = 64  # newest lines, never condensed
AT_ONCE = 256  # lines that are condensed together
MOST_KEYS = 100
Rows = NDArray[np.float64]


class JournalTail:
    """Reads a journal from where the last read ended. A journal that was cut or replaced is read from the start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reset()

    def _reset(self) -> None:
        self._file: os.stat_result | None = None
        self._offset = 0
        self._mark = b""
        self._events = {kind: deque[dict[str, Any]](maxlen=most) for kind, most in EVENTS.items()}
        self._series = Series()

    def read(self) -> list[dict[str, Any]]:
        """All lines that are kept, training lines last and with their numbers only."""
        *older, newest = RunFolder(self._folder).journal.parts()
        with suppress(FileNotFoundError), open(newest, "rb") as handle:  # not begun, or being rotated right now
            if not self._continues(handle):
                self._reset()
                for part in older:
                    with open(part, "rb") as before:
                        self._read_lines(before)
                self._offset, self._mark = 0, b""
                self._file = os.fstat(handle.fileno())
            handle.seek(self._offset)
            self._read_lines(handle)
        return [*(line for lines in self._events.values() for line in lines), *self._series.lines()]

    def _continues(self, handle: BinaryIO) -> bool:
        """Whether the file continues what was read. A new file may get the inode of a deleted one, so compare bytes."""
        if self._file is None or not os.path.samestat(self._file, os.fstat(handle.fileno())):
            return False
        handle.seek(self._offset - len(self._mark))
        return handle.read(len(self._mark)) == self._mark

    def _read_lines(self, handle: BinaryIO) -> None:
        """Read whole lines; the last one may be half-written."""
        rest = b""
        while piece := handle.read(PIECE):
            whole, newline, rest = (rest + piece).rpartition(b"\n")
            if not newline and len(rest) > PIECE:  # too long for a line of a journal
                whole, rest = rest, b""
            for text in whole.splitlines():
                if (line := parsed(text)) is not None and is_number(line["batch"]):
                    self._keep(line)
            self._offset += len(whole) + len(newline)
            self._mark = (self._mark + whole + newline)[-MARK:]

    def _keep(self, line: dict[str, Any]) -> None:
        event = str(line.get("event"))
        kind = "session" if event in SESSION else event
        if kind in self._events:
            self._events[kind].append(line)
        elif event not in NOT_TRAINING:
            self._series.add(line)


class Series:
    """Numbers of the training lines in bounded memory.

    Each stretch of a long journal keeps the lowest and highest value of every key, so spikes stay visible.
    """

    def __init__(self) -> None:
        self._columns: dict[str, None] = {"batch": None}  # an ordered set
        self._condensed: Rows = np.empty((0, 1))
        self._recent: list[array[float]] = []
        self._stride = 1  # lines of the journal per condensed row

    def add(self, line: dict[str, Any]) -> None:
        """Add the numbers of a line, which must have a "batch"."""
        numbers = {key: value for key, value in line.items() if is_number(value)}
        for key in numbers:
            if key not in self._columns and len(self._columns) < MOST_KEYS:
                self._columns[sys.intern(key)] = None
                self._condensed = np.pad(self._condensed, ((0, 0), (0, 1)), constant_values=np.nan)
                for row in self._recent:
                    row.append(np.nan)
        self._recent.append(array("d", [numbers.get(key, np.nan) for key in self._columns]))
        if len(self._recent) >= RECENT + max(AT_ONCE, 2 * self._stride):
            self._condense()

    def lines(self) -> list[dict[str, Any]]:
        """The lines that are kept, oldest first."""
        lines = []
        for row in (*self._condensed.tolist(), *self._recent):
            numbers = {key: value for key, value in zip(self._columns, row, strict=True) if value == value}  # not NaN
            lines.append({**numbers, "batch": int(row[0]), "event": "train"})
        return lines

    def _condense(self) -> None:
        """Condense all but the newest lines."""
        size = 2 * self._stride
        count = (len(self._recent) - RECENT) // size * size
        rows = np.array(self._recent[:count])
        del self._recent[:count]
        new = rows if self._stride == 1 else condensed(rows, size)
        self._condensed = np.concatenate([self._condensed, new])
        while len(self._condensed) > MOST_ROWS:
            whole = len(self._condensed) // 4 * 4
            self._condensed = np.concatenate([condensed(self._condensed[:whole], 4), self._condensed[whole:]])
            self._stride *= 2


def condensed(rows: Rows, size: int) -> Rows:
    """Replace each ``size`` rows by two: the lowest and the highest value of every column, in their order.

    >>> condensed(np.array([[1.0, 5.0], [2.0, 9.0], [3.0, np.nan], [4.0, 2.0]]), 4)
    array([[1., 9.],
           [4., 2.]])
    """
    groups = rows.reshape(-1, size, rows.shape[1])
    missing = np.isnan(groups)
    lowest = np.where(missing, np.inf, groups).argmin(axis=1)
    highest = np.where(missing, -np.inf, groups).argmax(axis=1)
    chosen = np.stack([np.minimum(lowest, highest), np.maximum(lowest, highest)], axis=1)
    return np.take_along_axis(groups, chosen, axis=1).reshape(-1, rows.shape[1])
