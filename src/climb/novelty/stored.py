"""The images of a memory as a reference for novelty, while the memory and the encoder change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from climb.errors import InputError
from climb.memory import Memory
from climb.novelty.running import RunningReference
from climb.novelty.scores import FEWEST, Scores

STALE = 100
"""Mini-batches after which the features of a stored image are computed again."""
SHARE, LEAST_BYTES = 1.0, 16 * 2**20
"""Most bytes of features, as a share of the memory's own, and the number that is always allowed."""


class StoredReference:
    """Features of the images in a memory. The caller computes them: `due` says of which images, `put` takes them.

    Args:
        memory: has the optional members ``stored_ids`` and ``images_of``.

    Raises:
        InputError: there is no memory, or it cannot list its images.

    >>> StoredReference(None)
    Traceback (most recent call last):
    climb.errors.InputError: no memory of images to compare with; use a method that stores images (climb methods)
    """

    def __init__(self, memory: Memory | None) -> None:
        if memory is None or not hasattr(memory, "stored_ids") or not hasattr(memory, "images_of"):
            raise InputError("no memory of images to compare with; use a method that stores images (climb methods)")
        self._memory: Any = memory
        self._reference = RunningReference(memory.capacity, most_bytes=max(LEAST_BYTES, int(SHARE * memory.nbytes)))

    @property
    def memory(self) -> Memory:
        """The memory."""
        memory: Memory = self._memory
        return memory

    @property
    def nbytes(self) -> int:
        """Bytes of features, reserved space included."""
        return self._reference.nbytes

    def __len__(self) -> int:
        return len(self._reference)

    def count(self, *, before: int) -> int:
        """Number of images with features and an id below ``before``."""
        return self._reference.count(before=before)

    def due(self, now: int, *, renewals: int | None = None) -> list[int]:
        """Ids of stored images without features, and of those whose features are older than 100 mini-batches.

        Args:
            now: mini-batches learned.
            renewals: most features to compute again; None for all that are old.
        """
        stored = self._memory.stored_ids()
        self._reference.drop_others(stored)
        most = len(self._reference) if renewals is None else renewals
        return self._reference.missing(stored) + self._reference.oldest(most, before=now - STALE)

    def images(self, ids: list[int]) -> Tensor:
        """The stored images of these ids, uint8 (n, 3, H, W)."""
        images: Tensor = self._memory.images_of(ids)
        return images

    def put(self, ids: Sequence[int], features: Tensor, now: int) -> None:
        """Set features (n, f) computed after ``now`` mini-batches. Images that have left the memory are skipped."""
        stored = set(self._memory.stored_ids())
        self._reference.drop_others(stored)
        kept = [row for row, each in enumerate(ids) if each in stored]
        self._reference.put([ids[row] for row in kept], features[torch.tensor(kept, dtype=torch.int64)], now=now)

    def score(self, features: Tensor, *, before: int | None = None) -> Scores:
        """The novelty of images with these features; ``nearest`` contains ids.

        ``before`` compares with images of lower ids only, those that came earlier in the stream.
        """
        if not self._reference.ready:
            few = f"{len(self)} images are stored; novelty needs at least {FEWEST} to compare with"
            raise InputError(f"{few}: learn more first")
        return self._reference.score(features, before=before)
