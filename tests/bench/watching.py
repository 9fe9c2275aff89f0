"""What tests do to runs in other processes: find them, wait for them, compare what they leave."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def holder(folder: Path) -> int:
    """The process that has a run, by its lock; waits until there is one."""
    lock = str(folder.parent / f".{folder.name}.lock")
    for _ in range(600):
        for path in Path("/proc").glob("[0-9]*/fd/*"):
            try:
                if os.readlink(path) == lock:
                    return int(path.parts[2])
            except OSError:
                continue
        time.sleep(0.05)
    raise AssertionError(f"nobody has {folder}")


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def without_seconds(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    del result["seconds"]
    return result
