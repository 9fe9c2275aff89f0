"""Stored images: one preallocated uint8 tensor, on the device if it fits, and the list of its free slots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch

from climb.arguments import check_room
from climb.parallel import SINGLE, Group, ShardedStore


class ImageStore:
    """``capacity`` slots for images of one shape. Slots are allocated on the host, without synchronisation.

    With ``on_host`` the images stay in host memory, pinned for a GPU: replayed images are gathered there and copied
    while the GPU is busy with the previous step.

    >>> store = ImageStore(2, (3, 8, 8), "cpu")
    >>> slots = store.put(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    >>> slots, len(store), store.get(slots).shape
    ([0], 1, torch.Size([1, 3, 8, 8]))
    """

    def __init__(
        self, capacity: int, image_shape: tuple[int, ...], device: torch.device | str, *, on_host: bool = False
    ) -> None:
        self.device = torch.device(device)
        """Device of the images that callers pass and receive."""
        self._pinned = on_host and self.device.type == "cuda"
        place = torch.device("cpu") if on_host else self.device
        self.images = torch.zeros((capacity, *image_shape), dtype=torch.uint8, device=place, pin_memory=self._pinned)
        self._free = list(range(capacity - 1, -1, -1))

    @property
    def capacity(self) -> int:
        """Number of slots, free and used."""
        return int(self.images.shape[0])

    def __len__(self) -> int:
        return self.capacity - len(self._free)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for images."""
        return self.images.numel()

    def put(self, images: torch.Tensor, ids: Sequence[int] = ()) -> list[int]:
        """Copy images (n, 3, H, W) into free slots, added if necessary; their slots. Only a sharded store uses ids."""
        self.make_room(len(images))
        slots = [self._free.pop() for _ in range(images.shape[0])]
        if slots:
            self.write(slots, images)
        return slots

    def write(self, slots: Sequence[int], images: torch.Tensor, ids: Sequence[int] = ()) -> None:
        """Overwrite the images in ``slots``."""
        self.images.index_copy_(0, index_on(self.images.device, slots), images.to(self.images.device))

    def get(self, slots: Sequence[int]) -> torch.Tensor:
        """A copy of the images in ``slots``, on the device."""
        index = index_on(self.images.device, slots)
        if not self._pinned:
            return self.images.index_select(0, index).to(self.device)
        gathered = torch.empty((len(index), *self.images.shape[1:]), dtype=torch.uint8, pin_memory=True)
        torch.index_select(self.images, 0, index, out=gathered)
        return gathered.to(self.device, non_blocking=True)

    def copied(self, slots: Sequence[int]) -> torch.Tensor:
        """A copy of the images in ``slots``, where they are stored: all images may be too large for the device."""
        return self.images.index_select(0, index_on(self.images.device, slots))

    def release(self, slots: Sequence[int]) -> None:
        """Free some slots."""
        self._free.extend(slots)

    def clear(self) -> None:
        """Free all slots."""
        self._free = list(range(self.capacity - 1, -1, -1))

    def make_room(self, images: int) -> None:
        """Ensure that so many slots are free. Growth at least doubles the store, so that few calls copy."""
        have, needed = self.capacity, len(self) + images
        if needed <= have:
            return
        old, room = self.images, max(needed, 2 * have)
        self.images = torch.zeros((room, *old.shape[1:]), dtype=torch.uint8, device=old.device, pin_memory=self._pinned)
        self.images[:have] = old
        self._free = [*range(room - 1, have - 1, -1), *self._free]


def index_on(device: torch.device, positions: Sequence[int] | np.ndarray) -> torch.Tensor:
    """Positions as an int64 tensor on the device, without synchronisation."""
    return torch.from_numpy(np.asarray(positions, dtype=np.int64)).to(device, non_blocking=True)


def open_store(
    capacity: int, image_shape: tuple[int, ...], device: torch.device | str, group: Group = SINGLE
) -> ImageStore | ShardedStore:
    """An empty store. For several processes, one whose images are spread over them."""
    nbytes = capacity * math.prod(image_shape)
    check_room(nbytes / group.size, f"{capacity} images of shape {tuple(image_shape)}", device)
    if group.size > 1:
        return ShardedStore(capacity, image_shape, device, group)
    return ImageStore(capacity, image_shape, device, on_host=not fits(nbytes, device))


def fits(nbytes: int, device: torch.device | str) -> bool:
    """Whether so many bytes leave half of a GPU's free memory to training; always true on other devices."""
    device = torch.device(device)
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return 2 * nbytes < free


class ImagesById:
    """Images by id, in the free slots of a store.

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
        """Copy new images (n, 3, H, W), one per id."""
        slots = self.store.put(images, ids)
        self.slot_of.update(zip(ids, slots, strict=True))

    def get(self, ids: Iterable[int]) -> torch.Tensor:
        """A copy of the images of these ids, in their order, on the device."""
        return self.store.get([self.slot_of[image] for image in ids])

    def copied(self, ids: Iterable[int]) -> torch.Tensor:
        """A copy of the images of these ids, where they are stored."""
        return self.store.copied([self.slot_of[image] for image in ids])

    def drop(self, ids: Iterable[int]) -> None:
        """Remove the images of these ids; ids without an image are skipped."""
        # An image that left within its own mini-batch was never stored.
        self.store.release([self.slot_of.pop(image) for image in ids if image in self.slot_of])

    def clear(self) -> None:
        """Remove all images."""
        self.slot_of.clear()
        self.store.clear()
