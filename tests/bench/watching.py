"""Helpers for runs in other processes: find them, wait for them, compare their results."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from climb.runs.folder import LOCKS
from climb.runs.run_file_checks import read_object

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
    result: dict[str, Any] = read_object(folder / "result.json")
    del result["seconds"]
    result["versions"].pop("commit", None)  # the checkout may change during the tests
    return result
