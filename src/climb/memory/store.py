"""Where stored images live: one preallocated uint8 tensor, on the device if it fits, and the list of its free slots."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from climb.errors import InputError
from climb.parallel import ShardedStore, current


class ImageStore:
    """``capacity`` slots for images of one shape. Slots are taken and given back on the host, without a sync.

    With ``on_host`` the images stay in the host's memory, pinned where the device is a GPU: what is replayed is
    gathered there and copied while the device is still busy with the step before.

    >>> store = ImageStore(2, (3, 8, 8), "cpu")
    >>> slots = store.put(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    >>> slots, len(store), store.get(slots).shape
    ([0], 1, torch.Size([1, 3, 8, 8]))
    """

    def __init__(
        self, capacity: int, image_shape: tuple[int, ...], device: torch.device | str, *, on_host: bool = False
    ) -> None:
        self.device = torch.device(device)
        """Where images are taken from and given to."""
        self._pinned = on_host and self.device.type == "cuda"
        place = torch.device("cpu") if on_host else self.device
        self.images = torch.zeros((capacity, *image_shape), dtype=torch.uint8, device=place, pin_memory=self._pinned)
        self._free = list(range(capacity - 1, -1, -1))

    @property
    def capacity(self) -> int:
        """Slots, free or taken."""
        return int(self.images.shape[0])

    def __len__(self) -> int:
        return self.capacity - len(self._free)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for images."""
        return self.images.numel()

    def put(self, images: torch.Tensor, ids: Sequence[int] = ()) -> list[int]:
        """Copy images (n, 3, H, W) into free slots; the slots. Ids matter where several processes share a store."""
        slots = [self._free.pop() for _ in range(images.shape[0])]
        if slots:
            self.write(slots, images)
        return slots

    def write(self, slots: Sequence[int], images: torch.Tensor, ids: Sequence[int] = ()) -> None:
        """Overwrite the images in ``slots``."""
        self.images.index_copy_(0, self._index(slots), images.to(self.images.device))

    def get(self, slots: Sequence[int]) -> torch.Tensor:
        """The images in ``slots``, copied to the device."""
        index = self._index(slots)
        if not self._pinned:
            return self.images.index_select(0, index).to(self.device)
        gathered = torch.empty((len(index), *self.images.shape[1:]), dtype=torch.uint8, pin_memory=True)
        torch.index_select(self.images, 0, index, out=gathered)
        return gathered.to(self.device, non_blocking=True)

    def copied(self, slots: Sequence[int]) -> torch.Tensor:
        """The images in ``slots``, copied, where they are kept: all of them may be too many for the device."""
        return self.images.index_select(0, self._index(slots))

    def release(self, slots: Sequence[int]) -> None:
        """Give slots back."""
        self._free.extend(slots)

    def clear(self) -> None:
        """Give every slot back."""
        self._free = list(range(self.capacity - 1, -1, -1))

    def make_room(self, images: int) -> None:
        """Have that many slots free. There will be at least twice as many in all, so that few calls copy."""
        have, needed = self.capacity, len(self) + images
        if needed <= have:
            return
        old, room = self.images, max(needed, 2 * have)
        self.images = torch.zeros((room, *old.shape[1:]), dtype=torch.uint8, device=old.device, pin_memory=self._pinned)
        self.images[:have] = old
        self._free = [*range(room - 1, have - 1, -1), *self._free]

    def _index(self, slots: Sequence[int]) -> torch.Tensor:
        return torch.from_numpy(np.asarray(slots, dtype=np.int64)).to(self.images.device, non_blocking=True)


def open_store(capacity: int, image_shape: tuple[int, ...], device: torch.device | str) -> ImageStore | ShardedStore:
    """An empty store; where several processes train one learner, one whose images are spread over them."""
    group = current()
    if group.size > 1:
        return ShardedStore(capacity, image_shape, device, group)
    return ImageStore(capacity, image_shape, device, on_host=not fits(capacity * math.prod(image_shape), device))


def fits(nbytes: int, device: torch.device | str) -> bool:
    """Whether so many bytes leave at least half of what a GPU has free to the training; elsewhere always."""
    device = torch.device(device)
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    return 2 * nbytes < free


def check_images(images: torch.Tensor, image_shape: tuple[int, ...]) -> None:
    """Refuse anything but uint8 images of the memory's shape."""
    if images.dtype != torch.uint8 or tuple(images.shape[1:]) != tuple(image_shape):
        raise InputError(
            f"the memory stores uint8 images of shape (n, {', '.join(map(str, image_shape))}); "
            f"given {images.dtype} of shape {tuple(images.shape)}"
        )


def checked_embeddings(
    embeddings: torch.Tensor | None, shape: tuple[int, int], device: torch.device | str
) -> torch.Tensor:
    """Embeddings of that shape (n, d) as the memory uses them: float32 on its device, without gradient."""
    if embeddings is None or tuple(embeddings.shape) != shape:
        given = None if embeddings is None else tuple(embeddings.shape)
        raise InputError(f"embeddings must have shape {shape}; given {given}")
    return embeddings.detach().to(device, torch.float32)
