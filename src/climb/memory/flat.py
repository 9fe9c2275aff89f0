"""What flat buffers share: slots, ids, uniform sampling. A buffer decides only which slot an image goes to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from climb.errors import InputError
from climb.memory.contract import Embed, InsertReport, ReplayBatch, Space
from climb.memory.store import ImageStore, check_images
from climb.seeds import numpy_generator


class FlatMemory(ABC):
    """Images without structure. Subclasses say where the next image goes, or that it is not kept."""

    space: ClassVar[Space | None] = None
    inserts: ClassVar[Literal["after", "before"]] = "after"
    bounded: ClassVar[bool] = True

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        embedding_dim: int,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        if capacity < 1:
            raise InputError(f"capacity must be at least 1; given {capacity}")
        self.image_shape = tuple(image_shape)
        self.embedding_dim = embedding_dim
        self._store = ImageStore(capacity, self.image_shape, device)
        self._ids = np.full(capacity, -1, dtype=np.int64)  # by slot; slots fill from 0 up
        self._stored = 0
        self._seen = 0
        self._insertion = numpy_generator(seed, "memory")
        self._replay = numpy_generator(seed, "replay")

    @abstractmethod
    def _place(self, number: int) -> int | None:
        """The slot for the ``number``-th image of the stream once the buffer is full; None to let it go."""

    @property
    def capacity(self) -> int:
        """The most images ever stored."""
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for images."""
        return self._store.nbytes

    def __len__(self) -> int:
        return self._stored

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None = None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Take one stream mini-batch of uint8 images (n, 3, H, W); embeddings are not used."""
        check_images(images, self.image_shape)
        report = {"novel": 0, "replaced": 0, "rejected": 0}
        row_of_slot: dict[int, int] = {}  # a later image of the batch may take the slot of an earlier one
        for row in range(images.shape[0]):
            number = self._seen
            self._seen += 1
            if self._stored < self.capacity:
                slot: int | None = self._stored
                self._stored += 1
                report["novel"] += 1
            else:
                slot = self._place(number)
                report["rejected" if slot is None else "replaced"] += 1
            if slot is not None:
                row_of_slot[slot] = row
                self._ids[slot] = number
        if row_of_slot:
            rows = torch.tensor(list(row_of_slot.values()))
            self._store.write(list(row_of_slot), images[rows.to(images.device)].to(self._store.images.device))
        return InsertReport(**report)

    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` different stored images, uniformly, or None until that many are stored."""
        if self._stored < max(n, 1):
            return None
        slots = self._replay.choice(self._stored, size=n, replace=False)
        return ReplayBatch(images=self._store.get(slots.tolist()), ids=torch.from_numpy(self._ids[slots]))

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:  # noqa: B027
        """Nothing to refresh: no embeddings are kept."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "images": self._store.images[: self._stored].clone(),
            "ids": torch.from_numpy(self._ids[: self._stored].copy()),
            "seen": self._seen,
            "insertion": self._insertion.bit_generator.state,
            "replay": self._replay.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        images = state["images"]
        if images.shape[0] > self.capacity or tuple(images.shape[1:]) != self.image_shape:
            raise InputError(
                f"the saved memory holds {images.shape[0]} images of shape {tuple(images.shape[1:])}; "
                f"this one has room for {self.capacity} of shape {self.image_shape}"
            )
        self._stored = int(images.shape[0])
        self._store.images[: self._stored] = images.to(self._store.images.device)
        self._ids[:] = -1
        self._ids[: self._stored] = state["ids"].numpy()
        self._seen = state["seen"]
        self._insertion.bit_generator.state = state["insertion"]
        self._replay.bit_generator.state = state["replay"]
