"""Whether a process is at work in a run folder, found out without getting in its way."""

from __future__ import annotations

import os
from pathlib import Path

HELD_LOCKS = Path("/proc/locks")


def is_held(path: Path) -> bool:
    """Whether the process that wrote its number into the lock file ``path`` is alive and still holds it.

    The lock itself is never tried: whoever tries it holds it for a moment, and a run that starts just then is refused.
    """
    try:
        owner, number = int(path.read_text(encoding="utf-8")), path.stat().st_ino
    except (OSError, ValueError):  # none, or not written yet
        return False
    try:
        held = [line.split() for line in HELD_LOCKS.read_text(encoding="utf-8").splitlines()]
    except OSError:  # not Linux: then that it is alive must do
        return _is_alive(owner)
    return any(
        len(words) > 5 and words[1] == "FLOCK" and words[4] == str(owner) and words[5].endswith(f":{number}")
        for words in held
    )


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:  # somebody else's
        return True
    except (OSError, OverflowError):
        return False
    return True
