"""The identities of all images learned: eight bytes each, in a file that only grows."""

from __future__ import annotations

import os
from array import array
from pathlib import Path
from threading import Lock
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from climb.errors import DamagedFile
from climb.files import naming, sync_folder, warn_unchecked

ADVICE = "restore the file, or start over in another folder"
WIDTH = 8
MERGE_AT = 16_384  # identities kept as Python objects, ten times as large, until they join the sorted array


class SeenImages:
    """Identities of images that have been learned, or that wait to be.

    The file is written with each checkpoint, which records how many identities are valid. Images learned after the
    last checkpoint are not in the restored model: it learns them again, and no image is learned twice.

    Args:
        path: the file.
        count: number of valid identities; the rest of the file is cut off.
        digest: CRC-32 of these identities, from the checkpoint; older ones have none.
        claims: whether a call claims the image. Claims only take memory if a source names each image once.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "learned.u64"
    >>> seen = SeenImages(path, 0)
    >>> seen(7), seen(7)
    (True, False)
    >>> seen.learned(7); seen.write()
    1
    >>> SeenImages(path, 1)(7)
    False
    """

    def __init__(self, path: Path, count: int, *, digest: int | None = None, claims: bool = True) -> None:
        self._path = path
        self._claims = claims
        self._lock = Lock()  # the thread that finds images claims them
        self._written = count
        self._unwritten = array("Q")
        self._recent: set[int] = set()
        self._released: set[int] = set()  # in the sorted array, but new again
        self.digest = 0
        """CRC-32 of the identities in the file."""
        self._sorted: NDArray[np.uint64] = self._read(count, digest)

    def __call__(self, identity: int, /) -> bool:
        """Whether an image is new; claims it, so that it is not new afterwards."""
        with self._lock:
            new = self._is_new(identity)
            if not (new and self._claims):
                return new
            self._released.discard(identity)
            self._recent.add(identity)
            if len(self._recent) >= MERGE_AT:
                fresh = np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent))
                merged = np.concatenate([self._sorted, np.sort(fresh)])
                merged.sort(kind="stable")  # merges two sorted parts: fifty times faster for millions
                self._sorted = merged
                self._recent.clear()
            return True

    def is_new(self, identity: int, /) -> bool:
        """Whether an image is new, without claiming it."""
        with self._lock:
            return self._is_new(identity)

    def release(self, identity: int, /) -> None:
        """Make a claimed image new again: it could not be read."""
        with self._lock:
            self._recent.discard(identity)
            if self._claims and self._holds(identity):
                self._released.add(identity)

    def learned(self, identity: int) -> None:
        """Note that the model has learned an image."""
        self._unwritten.append(identity)

    def write(self) -> int:
        """Append to the file and sync it; returns the count for the checkpoint."""
        begun = self._path.exists()
        with naming(self._path), open(self._path, "r+b" if begun else "w+b") as handle:
            handle.seek(self._written * WIDTH)  # overwrite what a failed attempt on a full disk left
            handle.write(written := self._unwritten.tobytes())
            handle.truncate()
            handle.flush()
            os.fsync(handle.fileno())
        if not begun:  # the checkpoint is in another folder, which is synced separately
            sync_folder(self._path.parent)
        self._written += len(self._unwritten)
        self.digest = crc32(written, self.digest)
        self._unwritten = array("Q")
        return self._written

    def _is_new(self, identity: int) -> bool:
        return identity in self._released or not (identity in self._recent or self._holds(identity))

    def _holds(self, identity: int) -> bool:
        place = int(np.searchsorted(self._sorted, np.uint64(identity)))
        return place < len(self._sorted) and int(self._sorted[place]) == identity

    def _read(self, count: int, digest: int | None) -> NDArray[np.uint64]:
        if count == 0:
            return np.zeros(0, dtype=np.uint64)
        if not isinstance(count, int) or count < 0:
            raise TypeError(f"{count!r} is no count of learned images")
        identities = np.fromfile(self._path, dtype=np.uint64, count=count) if self._path.exists() else np.zeros(0)
        if len(identities) < count:
            raise DamagedFile(
                f"{self._path} names {len(identities):,} learned images, the checkpoint counts {count:,}: {ADVICE}"
            )
        self.digest = crc32(identities.tobytes())
        if digest is None:
            warn_unchecked(self._path)
        elif self.digest != digest:
            raise DamagedFile(f"{self._path} is damaged: it does not match the checksum in the checkpoint; {ADVICE}")
        return np.sort(identities)
