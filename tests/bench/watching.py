"""What tests do to runs in other processes: find them, wait for them, compare what they leave."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from climb.runs.folder import LOCKS

ENDLESS = 2000  # images of a class: a run of minutes, which does not end before one that is started later


def holder(folder: Path) -> int:
    """The process that has a run, by its lock. At once: a run that is to be disturbed must not end meanwhile."""
    return int((folder / LOCKS["run"]).read_text())


def wait_for(condition: Callable[[], object], seconds: float = 600) -> None:
    """For so long that only what never comes is given up, however slow the machine is."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def without_seconds(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    del result["seconds"]
    result["versions"].pop("commit", None)  # somebody may be at work in the checkout while tests run
    return result
