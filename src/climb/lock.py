"""One process at a time, by a lock file. The system lets go of it when a process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from climb.errors import ClimbError, InputError

try:
    import fcntl
except ImportError:  # Windows has no such lock: there processes are not kept apart
    fcntl = None  # type: ignore[assignment]


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` while inside; a second process waits for its turn."""
    with open(path, "ab") as handle:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file ``path`` now. Of a drive that does not say, no."""
    try:
        with open(path, "rb") as handle:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: who looks keeps nobody else from looking
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` while inside; a second process is refused, and told the number of the first."""
    with open(path, "a+", encoding="utf-8") as handle:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.seek(0)
                owner = handle.read().strip() or "unknown"
                raise InputError(
                    f"another process (number {owner}) is at work in {path.parent}; stop it, or give another --out"
                ) from None
            except OSError as error:  # of the drive: some of other machines have no locks
                raise ClimbError(f"cannot lock {path}: {error.strerror}; give an --out on another drive") from error
        handle.truncate(0)
        try:
            os.write(handle.fileno(), f"{os.getpid()}\n".encode())  # at once: nothing is left to fail when it is closed
        except OSError as error:
            raise ClimbError(f"cannot write {path}: {error.strerror}") from error
        yield
