"""The stored images of a memory that knows them by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from climb.memory.store import ImageStore
from climb.parallel import ShardedStore


class ImagesById:
    """Images under their ids, in whichever slots of a store are free.

    >>> images = ImagesById(ImageStore(2, (3, 8, 8), "cpu"))
    >>> images.put([5, 7], torch.zeros(2, 3, 8, 8, dtype=torch.uint8))
    >>> images.drop([5])
    >>> images.get([7]).shape, len(images.store)
    (torch.Size([1, 3, 8, 8]), 1)
    """

    def __init__(self, store: ImageStore | ShardedStore) -> None:
        self.store = store
        self.slot_of: dict[int, int] = {}

    def put(self, ids: Sequence[int], images: torch.Tensor) -> None:
        """Copy new images (n, 3, H, W), one for each id."""
        slots = self.store.put(images, ids)
        self.slot_of.update(zip(ids, slots, strict=True))

    def get(self, ids: Iterable[int]) -> torch.Tensor:
        """The images of these ids, copied to the device, in their order."""
        return self.store.get([self.slot_of[image] for image in ids])

    def copied(self, ids: Iterable[int]) -> torch.Tensor:
        """The same images, copied, where they are kept."""
        return self.store.copied([self.slot_of[image] for image in ids])

    def drop(self, ids: Iterable[int]) -> None:
        """Forget the images of these ids; one that came and went within a mini-batch was never put here."""
        self.store.release([self.slot_of.pop(image) for image in ids if image in self.slot_of])

    def clear(self) -> None:
        """Forget every image."""
        self.slot_of.clear()
        self.store.clear()
