"""The journal of a run: one JSON line per event worth a plot, append-only."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from climb.files import write_text


class Journal:
    """Each line carries the number of mini-batches done, so that a resumed run can cut what it is about to redo."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, batch: int, event: str, **values: Any) -> None:
        """Append one line. JSON has no NaN: such a value is written as null."""
        line = {"batch": batch, "event": event, **{key: plain(value) for key, value in values.items()}}
        with open(self.path, "a", encoding="utf-8") as handle:
            handle.write(json.dumps(line, allow_nan=False) + "\n")

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
        lines = []
        for text in self.path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                break  # the end of an interrupted write
        return [line for line in lines if event is None or line["event"] == event]


def plain(value: Any) -> Any:
    """The value as JSON can hold it: None for what is not a finite number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
