"""A journal that is being written, read a little further each time."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO

from climb.report.record import NOT_TRAINING
from climb.runs import RunFolder
from climb.runs.journal import parsed
from climb.runs.json_files import is_number
from climb.serve.series import Series

EVENTS = {"floor": 100, "evaluation": 5000, "warning": 100, "sitting": 1}  # lines kept, the newest ones
SITTINGS = ("start", "end")
PIECE = 2**20  # bytes read at once; a line that is longer is none
MARK = 4096  # bytes before the place that was read up to: they tell whether it is still the same journal


class JournalTail:
    """Remembers how far it has read. A journal that was cut, replaced or continued is read again from the start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: tuple[int, int] | None = None  # device and inode
        self._forget()

    def read(self) -> list[dict[str, Any]]:
        """What is kept of all whole lines so far: of those on training their numbers, as many as a chart can show."""
        *older, newest = RunFolder(self._folder).journal_parts()
        try:
            with open(newest, "rb") as handle:
                if not self._continues(handle):
                    self._forget()
                    for part in older:
                        with open(part, "rb") as before:
                            self._take(before)
                    self._offset, self._mark = 0, b""
                    self._file = _identity(handle)
                handle.seek(self._offset)
                self._take(handle)
        except FileNotFoundError:  # not begun, or just being continued in another file
            pass
        return [*(line for lines in self._events.values() for line in lines), *self._series.lines()]

    def _forget(self) -> None:
        self._file = None
        self._offset = 0
        self._mark = b""
        self._events = {kind: deque[dict[str, Any]](maxlen=most) for kind, most in EVENTS.items()}
        self._series = Series()

    def _continues(self, handle: BinaryIO) -> bool:
        """Whether the file is the one that was read, and goes on from there. Its number alone does not tell: a file
        that replaces another may get the number of one that was deleted before."""
        if _identity(handle) != self._file:
            return False
        handle.seek(self._offset - len(self._mark))
        return handle.read(len(self._mark)) == self._mark

    def _take(self, handle: BinaryIO) -> None:
        """Read whole lines; the last one may be half-written."""
        rest = b""
        while piece := handle.read(PIECE):
            whole, newline, rest = (rest + piece).rpartition(b"\n")
            if not newline and len(rest) > PIECE:  # never the end of a line: let it go
                whole, rest = rest, b""
            for text in whole.splitlines():
                if (line := parsed(text)) is not None and is_number(line["batch"]):
                    self._keep(line)
            self._offset += len(whole) + len(newline)
            self._mark = (self._mark + whole + newline)[-MARK:]

    def _keep(self, line: dict[str, Any]) -> None:
        event = str(line.get("event"))
        kind = "sitting" if event in SITTINGS else event
        if kind in self._events:
            self._events[kind].append(line)
        elif event not in NOT_TRAINING:
            self._series.add(line)


def _identity(handle: BinaryIO) -> tuple[int, int]:
    status = os.fstat(handle.fileno())
    return status.st_dev, status.st_ino
