"""A journal for weeks: the newest lines in ``journal.jsonl``, older ones in numbered files, the oldest dropped."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from climb.runs import Journal

MOST_BYTES = 4 * 2**20
KEPT = 4  # older files, beside the one that is written to


class LongJournal:
    """A `Journal` that never takes more than ``(kept + 1) * most_bytes`` on disk, a line or so aside."""

    def __init__(self, path: Path, *, most_bytes: int = MOST_BYTES, kept: int = KEPT) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._kept = kept
        self._newest = Journal(path)

    def write(self, batch: int, event: str, **values: Any) -> None:
        """Append one line, and begin a new file if this one is full."""
        self._newest.write(batch, event, **values)
        if self.path.stat().st_size < self._most_bytes:
            return
        for number in range(self._kept, 0, -1):
            younger = self._numbered(number - 1)
            if younger.exists():
                os.replace(younger, self._numbered(number))

    def cut(self, batch: int) -> None:
        """Drop lines past mini-batch number ``batch``."""
        for number in range(self._kept + 1):
            Journal(self._numbered(number)).cut(batch)

    def read(self, event: str | None = None) -> list[dict[str, Any]]:
        """All lines that are kept, oldest first, or those of one kind of event."""
        return [line for number in range(self._kept, -1, -1) for line in Journal(self._numbered(number)).read(event)]

    def _numbered(self, number: int) -> Path:
        return self.path if number == 0 else self.path.with_name(f"{self.path.stem}.{number}{self.path.suffix}")
