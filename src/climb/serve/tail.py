"""A journal that is being written, read a little further each time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from climb.report.record import NOT_TRAINING, journal_parts
from climb.runs.journal import parsed

MOST = 20_000  # lines kept; beyond, every second one on training goes, and the curves look the same


class JournalTail:
    """Remembers how far it has read. A journal that was cut, replaced or continued is read again from the start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: tuple[int, int] | None = None  # device and inode
        self._offset = 0
        self._lines: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """All whole lines so far."""
        *older, newest = journal_parts(self._folder)
        try:
            with open(newest, "rb") as handle:
                status = os.fstat(handle.fileno())
                file = (status.st_dev, status.st_ino)
                if file != self._file or status.st_size < self._offset:
                    self._file, self._offset, self._lines = file, 0, []
                    for part in older:
                        self._take(part.read_bytes())
                handle.seek(self._offset)
                data = handle.read()
        except FileNotFoundError:  # not begun, or just being continued in another file
            return self._lines
        whole = data[: data.rfind(b"\n") + 1]  # the last line may be half-written
        self._offset += len(whole)
        self._take(whole)
        return self._lines

    def _take(self, data: bytes) -> None:
        self._lines += [line for text in data.splitlines() if (line := parsed(text)) is not None]
        while len(self._lines) > MOST and self._thin():
            pass

    def _thin(self) -> bool:
        """Drop every second line on training; whether there was one."""
        training = [place for place, line in enumerate(self._lines) if line.get("event") not in NOT_TRAINING]
        dropped = set(training[1::2])
        self._lines = [line for place, line in enumerate(self._lines) if place not in dropped]
        return bool(dropped)
