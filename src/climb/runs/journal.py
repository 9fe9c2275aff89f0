"""The journal of a run: one JSON line per event worth a plot, append-only."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, BinaryIO

from climb.files import naming, write_text

LAST_BYTES = 4096  # hold the last line, unless that is a long one


class Journal:
    """Each line carries the number of mini-batches done, so that a resumed run can cut what it is about to redo."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, batch: int, event: str, **values: Any) -> None:
        """Append one line. JSON has no NaN: such a value is written as null."""
        line = {"batch": batch, "event": event, **{key: plain(value) for key, value in values.items()}}
        text = json.dumps(line, allow_nan=False) + "\n"
        with naming(self.path), open(self.path, "ab+") as handle:
            if handle.tell() and not _ends_a_line(handle):
                text = "\n" + text
            handle.write(text.encode())

    def cut(self, batch: int, *, task: int | None = None) -> None:
        """Drop what is about to be redone: lines past mini-batch number ``batch``, the evaluation of ``task``, and a
        last line that a crash left half-written."""
        if self.path.exists():
            kept = [
                json.dumps(line)
                for line in self.read()
                if line["batch"] <= batch and (task is None or line.get("task") != task)
            ]
            write_text(self.path, "".join(f"{line}\n" for line in kept))

    def read(self, event: str | None = None) -> list[dict[str, Any]]:
        """All whole lines, or those of one kind of event."""
        if not self.path.exists():
            return []
        lines = (line for text in self.path.read_bytes().splitlines() if (line := parsed(text)) is not None)
        return [line for line in lines if event is None or line.get("event") == event]

    def last(self) -> dict[str, Any] | None:
        """The last line; None where there is none, or it is half-written. Costs the same in a long journal."""
        try:
            with open(self.path, "rb") as handle:
                handle.seek(max(0, handle.seek(0, os.SEEK_END) - LAST_BYTES))
                lines = handle.read().splitlines()
        except OSError:
            return None
        return parsed(lines[-1]) if lines else None


def _ends_a_line(handle: BinaryIO) -> bool:
    handle.seek(-1, os.SEEK_END)
    return handle.read(1) == b"\n"


def parsed(text: bytes) -> dict[str, Any] | None:
    """A line of a journal; None for what is none: a full disk, a crash or a power cut may leave half a line anywhere.

    >>> parsed(b'{"batch": 3, "event": "train"}'), parsed(b'{"batch": 3, "ev')
    ({'batch': 3, 'event': 'train'}, None)
    """
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):  # the latter for brackets within brackets without end
        return None
    return line if isinstance(line, dict) and isinstance(line.get("batch"), int) else None


def plain(value: Any) -> Any:
    """The value as JSON can hold it: None for what is not a finite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
