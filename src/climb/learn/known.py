"""Which images have been learned: eight bytes each, in a file that only grows."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from climb.errors import ClimbError
from climb.files import naming, sync_folder

WIDTH = 8
MERGE_AT = 16_384  # identities kept as Python objects, ten times the size, before they join the sorted array


class KnownImages:
    """Identities of images that are learned, or on their way to be.

    The file is written when a checkpoint is, and the checkpoint says how much of it counts: what was learned after the
    last checkpoint is unknown to the restored model and is learned by it again, and nothing is learned twice.

    Args:
        path: the file.
        count: how many identities of it count; what lies beyond was not checkpointed and is cut off.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "learned.u64"
    >>> known = KnownImages(path, 0)
    >>> known(7), known(7)
    (True, False)
    >>> known.learned(7); known.write()
    1
    >>> KnownImages(path, 1)(7)
    False
    """

    def __init__(self, path: Path, count: int) -> None:
        self._path = path
        self._lock = Lock()  # images are claimed where they are found, in another thread
        self._written = count
        self._unwritten = array("Q")
        self._recent: set[int] = set()
        self._released: set[int] = set()  # of those in the sorted array
        self._sorted: NDArray[np.uint64] = self._read(count)

    def __len__(self) -> int:
        """Identities learned, written or not."""
        return self._written + len(self._unwritten)

    def __call__(self, identity: int, /) -> bool:
        """Whether an image is new; from now on it is not."""
        with self._lock:
            if identity in self._released:
                self._released.remove(identity)
                return True
            if identity in self._recent or self._holds(identity):
                return False
            self._recent.add(identity)
            if len(self._recent) >= MERGE_AT:
                fresh = np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent))
                merged = np.concatenate([self._sorted, np.sort(fresh)])
                merged.sort(kind="stable")  # of two sorted parts it makes one merge: fifty times faster for millions
                self._sorted = merged
                self._recent.clear()
            return True

    def is_new(self, identity: int, /) -> bool:
        """Whether an image is new; it stays so, which takes no memory."""
        with self._lock:
            return identity in self._released or not (identity in self._recent or self._holds(identity))

    def release(self, identity: int, /) -> None:
        """Make an image new again that was claimed and could not be read."""
        with self._lock:
            if identity in self._recent:
                self._recent.remove(identity)
            elif self._holds(identity):
                self._released.add(identity)

    def learned(self, identity: int) -> None:
        """An image is in the model now."""
        self._unwritten.append(identity)

    def write(self) -> int:
        """Append to the file and sync it; the count to write into the checkpoint."""
        begun = self._path.exists()
        with naming(self._path), open(self._path, "r+b" if begun else "w+b") as handle:
            handle.seek(self._written * WIDTH)  # over what an attempt on a full disk may have left
            handle.write(self._unwritten.tobytes())
            handle.truncate()
            handle.flush()
            os.fsync(handle.fileno())
        if not begun:  # the checkpoint that counts on it has a folder of its own
            sync_folder(self._path.parent)
        self._written += len(self._unwritten)
        self._unwritten = array("Q")
        return self._written

    def _holds(self, identity: int) -> bool:
        place = int(np.searchsorted(self._sorted, np.uint64(identity)))
        return place < len(self._sorted) and int(self._sorted[place]) == identity

    def _read(self, count: int) -> NDArray[np.uint64]:
        if count == 0:
            return np.zeros(0, dtype=np.uint64)
        found = np.fromfile(self._path, dtype=np.uint64, count=count) if self._path.exists() else ()
        if len(found) < count:
            raise ClimbError(
                f"{self._path} names {len(found):,} learned images, the checkpoint counts {count:,}: "
                "restore the file, or start over in another folder"
            )
        return np.sort(found)


class Unclaimed:
    """Asks a list of learned images and leaves it as it is: for sources that name each image once."""

    def __init__(self, known: KnownImages) -> None:
        self._known = known

    def __call__(self, identity: int, /) -> bool:
        """Whether an image is new."""
        return self._known.is_new(identity)

    is_new = __call__

    def release(self, identity: int, /) -> None:
        """Nothing was claimed."""
