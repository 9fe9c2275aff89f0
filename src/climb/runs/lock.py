"""One process a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from climb.errors import InputError


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` while inside. The system lets go of it when a process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows has no such lock
        yield
        return
    with open(path, "a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            owner = handle.read().strip() or "unknown"
            raise InputError(
                f"another process (number {owner}) is at work in {path.parent}; stop it, or give another --out"
            ) from None
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        yield
