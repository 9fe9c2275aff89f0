"""Where downloaded and decoded data lives on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from climb.errors import ClimbError

try:
    import fcntl
except ImportError:  # Windows has none; there two simultaneous downloads are not kept apart.
    fcntl = None  # type: ignore[assignment]


def writable_folder(folder: Path) -> Path:
    """The folder, made if needed; a ClimbError when that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClimbError(
            f"cannot make the folder {folder}: {error.strerror}; "
            "set CLIMB_CACHE to a folder that can be written to, for example: export CLIMB_CACHE=/tmp/climb"
        ) from error
    return folder


@contextlib.contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Run the block in one process at a time; the others wait. The lock goes with its process."""
    with lock.open("ab") as handle:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
