"""The journal of a run or learner: one JSON line per event, append-only."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from climb.files import naming, write_text

LAST_BYTES = 4096  # enough for most lines
MOST_BYTES = 4 * 2**20  # of each file of a learner's journal
KEPT = 4  # older files of it


class Journal:
    """Each line carries the number of mini-batches done, so that a resumed run can cut the lines it will redo.

    Args:
        path: the newest file.
        most_bytes: begin a new file at this size; None keeps one file. The older files are numbered, and the oldest is
            dropped: the journal takes at most ``(kept + 1) * most_bytes`` on disk, plus a line.
        kept: number of older files.
    """

    def __init__(self, path: Path, *, most_bytes: int | None = None, kept: int = KEPT) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._kept = kept

    def write(self, batch: int, event: str, **values: Any) -> None:
        """Append one line. JSON has no NaN: such a value is written as null."""
        line = {"batch": batch, "event": event, **{key: plain(value) for key, value in values.items()}}
        text = json.dumps(line, allow_nan=False) + "\n"
        with naming(self.path), open(self.path, "ab+") as handle:
            if handle.tell() > 0:
                handle.seek(-1, os.SEEK_END)
                half_a_line = handle.read(1) != b"\n"
                text = "\n" * half_a_line + text
            handle.write(text.encode())
        if self._most_bytes is not None and self.path.stat().st_size >= self._most_bytes:
            for number in range(self._kept, 0, -1):
                if (newer := self._numbered(number - 1)).exists():
                    os.replace(newer, self._numbered(number))

    def cut(self, batch: int, *, task: int | None = None) -> None:
        """Drop the lines that will be redone: those after mini-batch number ``batch``, the evaluation of ``task``, and
        half a line that a crash left."""
        for path in self.parts():
            if path.exists():
                kept = (line for line in _read(path) if line["batch"] <= batch)
                lines = [json.dumps(line) for line in kept if task is None or line.get("task") != task]
                write_text(path, "".join(f"{line}\n" for line in lines))

    def read(self, event: str | None = None) -> list[dict[str, Any]]:
        """All whole lines, oldest first, or those of one kind of event."""
        lines = (line for path in self.parts() if path.exists() for line in _read(path))
        return [line for line in lines if event is None or line.get("event") == event]

    def parts(self) -> list[Path]:
        """The files, oldest lines first. The last, which is written to, may not exist yet."""
        older = self.path.parent.glob(f"{self.path.stem}.*{self.path.suffix}")
        numbers = [int(number) for path in older if (number := path.stem.rpartition(".")[2]).isdecimal()]
        return [*map(self._numbered, sorted(numbers, reverse=True)), self.path]

    def last(self) -> dict[str, Any] | None:
        """The last line of the newest file; None if there is none, or half a line. Fast for a long journal, too."""
        try:
            with open(self.path, "rb") as handle:
                handle.seek(max(0, handle.seek(0, os.SEEK_END) - LAST_BYTES))
                lines = handle.read().splitlines()
        except OSError:
            return None
        return parsed(lines[-1]) if lines else None

    def _numbered(self, number: int) -> Path:
        return self.path if number == 0 else self.path.with_name(f"{self.path.stem}.{number}{self.path.suffix}")


def _read(path: Path) -> list[dict[str, Any]]:
    return [line for text in path.read_bytes().splitlines() if (line := parsed(text)) is not None]


def parsed(text: bytes) -> dict[str, Any] | None:
    """A line of a journal; None if it is not whole. A full disk or a crash may leave half a line anywhere.

    >>> parsed(b'{"batch": 3, "event": "train"}'), parsed(b'{"batch": 3, "ev')
    ({'batch': 3, 'event': 'train'}, None)
    """
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):  # RecursionError: endless nested brackets
        return None
    return line if isinstance(line, dict) and isinstance(line.get("batch"), int) else None


def plain(value: Any) -> Any:
    """The value, or None for a number that is not finite, which JSON cannot hold."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
