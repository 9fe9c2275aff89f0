"""Where stored images live when several processes share a memory: image id modulo R says on which of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from climb.parallel.group import Group
from climb.parallel.rows import chunk, collect


class ShardedStore:
    """``capacity`` slots for images of one shape, like an `ImageStore`, whose pixels are spread over the processes.

    Slots are the same everywhere; the image in one is kept by process ``id mod R`` alone. Room is made for an even
    share first, ceil(capacity / R) images, and for half as many again each time a process happens to own more than it
    has room for: all together they hold at most ``capacity``.

    To `get` images, every process sends those it keeps to all others or, inside `Group.own_share_only`, to the one that
    trains on them. All know which process keeps and needs which image, so no count travels.
    """

    def __init__(self, capacity: int, image_shape: tuple[int, ...], device: torch.device | str, group: Group) -> None:
        self._group = group
        self._kept = torch.zeros((math.ceil(capacity / group.size), *image_shape), dtype=torch.uint8, device=device)
        self.device = self._kept.device
        """Where images live."""
        self._capacity = capacity
        self._free = list(range(capacity - 1, -1, -1))
        self._owner = np.full(capacity, -1, dtype=np.int64)  # by slot: the process that keeps the image
        self._place = np.full(capacity, -1, dtype=np.int64)  # by slot: where this process keeps it, if it does
        self._vacant = list(range(len(self._kept) - 1, -1, -1))  # places of this process

    def __len__(self) -> int:
        return self._capacity - len(self._free)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for images, in this process."""
        return self._kept.numel()

    def put(self, images: torch.Tensor, ids: Sequence[int]) -> list[int]:
        """Copy images (n, 3, H, W), which every process is given, into free slots; the slots."""
        slots = [self._free.pop() for _ in range(images.shape[0])]
        self.write(slots, images, ids)
        return slots

    def write(self, slots: Sequence[int], images: torch.Tensor, ids: Sequence[int]) -> None:
        """Overwrite the images in different ``slots``; each process copies those that are its own."""
        self._vacate(slots)
        owners = np.asarray(ids, dtype=np.int64) % self._group.size
        self._owner[np.asarray(slots, dtype=np.int64)] = owners
        rows = np.flatnonzero(owners == self._group.rank)
        self._make_room(len(rows))
        places = [self._vacant.pop() for _ in rows]
        self._place[np.asarray(slots, dtype=np.int64)[rows]] = places
        chosen = images.index_select(0, self._index(rows).to(images.device)).to(self._kept.device)
        self._kept.index_copy_(0, self._index(places), chosen)

    def get(self, slots: Sequence[int]) -> torch.Tensor:
        """The images in ``slots``, copied, in every process; all must ask for the same."""
        wanted = np.asarray(slots, dtype=np.int64)
        if len(wanted) == 0:
            return self._kept[:0].clone()
        return self._exchanged(wanted) if self._group.fetches_own_share else self._gathered(wanted)

    copied = get

    def _exchanged(self, wanted: np.ndarray) -> torch.Tensor:
        """This process's `chunk` of the images; the others are left black."""
        rank, size = self._group.rank, self._group.size
        parts = [chunk(len(wanted), other, size) for other in range(size)]
        sent = [self._place[wanted[part]] for part in parts]
        sent = [places[places >= 0] for places in sent]
        owners = self._owner[wanted[parts[rank]]]
        received = np.bincount(owners, minlength=size).tolist()
        rows = self._kept.index_select(0, self._index(np.concatenate(sent)))
        arrived = self._group.all_to_all(rows, [len(places) for places in sent], received)
        # They arrive process by process; from each, in the order asked for.
        order = parts[rank].start + np.argsort(owners, kind="stable")
        images = self._kept.new_zeros((len(wanted), *self._kept.shape[1:]))
        return images.index_copy_(0, self._index(order), arrived)

    def _gathered(self, wanted: np.ndarray) -> torch.Tensor:
        owners = self._owner[wanted]
        mine = self._kept.index_select(0, self._index(self._place[wanted[owners == self._group.rank]]))
        arrived = collect(mine, np.bincount(owners, minlength=self._group.size).tolist(), self._group)
        # They arrive process by process; from each, in the order asked for.
        return arrived.index_select(0, self._index(np.argsort(owners, kind="stable").argsort()))

    def release(self, slots: Sequence[int]) -> None:
        """Give slots back."""
        self._vacate(slots)
        self._free.extend(slots)

    def clear(self) -> None:
        """Give every slot back."""
        self._vacate(range(self._capacity))
        self._free = list(range(self._capacity - 1, -1, -1))

    def _vacate(self, slots: Sequence[int]) -> None:
        index = np.asarray(slots, dtype=np.int64)
        places = self._place[index]
        self._vacant.extend(places[places >= 0].tolist())
        self._place[index] = -1
        self._owner[index] = -1

    def _make_room(self, images: int) -> None:
        have = len(self._kept)
        need = have - len(self._vacant) + images
        if need <= have:
            return
        room = min(self._capacity, max(need, math.ceil(1.5 * have)))
        self._vacant = [*range(room - 1, have - 1, -1), *self._vacant]
        self._kept = torch.cat([self._kept, self._kept.new_zeros((room - have, *self._kept.shape[1:]))])

    def _index(self, positions: Sequence[int] | np.ndarray) -> torch.Tensor:
        index = torch.from_numpy(np.asarray(positions, dtype=np.int64))
        return index.to(self._kept.device, non_blocking=True)
