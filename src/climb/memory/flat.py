"""What flat buffers share: slots, ids, uniform sampling, and one embedding per image where a method asks for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from climb.errors import InputError
from climb.memory.contract import Embed, InsertReport, ReplayBatch, Space
from climb.memory.store import check_images, checked_embeddings, open_store
from climb.seeds import numpy_generator


class FlatMemory(ABC):
    """Images without structure. Subclasses say which slot each image goes to, or that it is not kept.

    Args:
        capacity: most images ever stored.
        image_shape: (3, H, W).
        embedding_dim: length of an embedding.
        embedding_rate: None keeps images alone. A number r in 0..1 keeps one embedding beside each image, which every
            replay moves: ``stored = (1 - r) stored + r z``. CLA-R (Cignoni et al., 2025) distils from these, r = 0.5.
        seed: seed of the random choices.
        device: where images and embeddings live.
    """

    space: ClassVar[Space | None] = None
    inserts: ClassVar[Literal["after", "before"]] = "after"
    bounded: ClassVar[bool] = True
    by_number: ClassVar[bool] = False
    """Whether `_slots` goes by how many images have been seen; then the memory is full once they are enough."""

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        embedding_dim: int,
        *,
        embedding_rate: float | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        if capacity < 1:
            raise InputError(f"capacity must be at least 1; given {capacity}")
        if embedding_rate is not None and not 0 <= embedding_rate <= 1:
            raise InputError(f"embedding_rate must be None or in 0..1; given {embedding_rate}")
        self.image_shape = tuple(image_shape)
        self.embedding_dim = embedding_dim
        self._rate = embedding_rate
        self._store = open_store(capacity, self.image_shape, device)
        self._embeddings = torch.zeros((0, embedding_dim), dtype=torch.float32, device=device)
        if embedding_rate is not None:
            self.space = "projector"  # type: ignore[misc]  # the same class without embeddings has no space
            self._embeddings = torch.zeros((capacity, embedding_dim), dtype=torch.float32, device=device)
        self._ids = np.full(capacity, -1, dtype=np.int64)  # by slot; slots fill from 0 up
        self._slot_of: dict[int, int] = {}  # image id -> slot; who is stored
        self._seen = 0
        self._insertion = numpy_generator(seed, "memory")
        self._replay = numpy_generator(seed, "replay")

    @abstractmethod
    def _slots(self, images: torch.Tensor, embed: Embed | None) -> Sequence[int | None]:
        """A slot for each image (n, 3, H, W), in order; None lets an image go.

        Empty slots are taken in order. A slot named again goes to the later image.
        """

    @property
    def capacity(self) -> int:
        """The most images ever stored."""
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for images, and for embeddings where they are kept."""
        return self._store.nbytes + self._embeddings.nbytes

    def __len__(self) -> int:
        return len(self._slot_of)

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None = None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Take one stream mini-batch: uint8 images (n, 3, H, W); embeddings (n, d) if they are kept."""
        check_images(images, self.image_shape)
        if self._rate is not None:
            embeddings = self._checked(embeddings, len(images))
        report = {"novel": 0, "replaced": 0, "rejected": 0}
        row_of_slot: dict[int, int] = {}  # a later image of the batch may take the slot of an earlier one
        for row, slot in enumerate(self._slots(images, embed)):
            if slot is None:
                report["rejected"] += 1
                continue
            self._check_slot(slot)
            empty = self._ids[slot] < 0
            report["novel" if empty else "replaced"] += 1
            if not empty:
                del self._slot_of[int(self._ids[slot])]
            self._ids[slot] = self._seen + row
            self._slot_of[self._seen + row] = slot
            row_of_slot[slot] = row
        self._seen += len(images)
        if row_of_slot:
            slots, rows = list(row_of_slot), torch.tensor(list(row_of_slot.values()))
            self._store.write(slots, images[rows.to(images.device)], self._ids[slots].tolist())
            if self._rate is not None and embeddings is not None:
                self._keep(slots, embeddings[rows.to(embeddings.device)])
        return InsertReport(**report)

    def _check_slot(self, slot: int) -> None:
        """Refuse what a derived memory may not name; draws count on the empty slots being the last ones."""
        if not 0 <= slot <= min(len(self), self.capacity - 1):
            raise InputError(
                f"{type(self).__name__}._slots gave slot {slot} with {len(self)} of {self.capacity} images stored; "
                f"allowed: 0 to {self.capacity - 1}, empty slots in order, or None"
            )

    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` different stored images, uniformly, or None until that many are stored."""
        if len(self) < max(n, 1):
            return None
        slots = self._replay.choice(len(self), size=n, replace=False)
        return ReplayBatch(
            images=self._store.get(slots.tolist()),
            ids=torch.from_numpy(self._ids[slots]),
            embeddings=self._embeddings.index_select(0, self._index(slots)) if self._rate is not None else None,
        )

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """New embeddings (n, d) of replayed images move the stored ones; ids no longer stored are ignored.

        Of an id given twice the last embedding counts.
        """
        if self._rate is None:
            return
        embeddings = self._checked(embeddings, len(ids))
        row_of_slot = {self._slot_of[image]: row for row, image in enumerate(ids.tolist()) if image in self._slot_of}
        if not row_of_slot:
            return
        slots = list(row_of_slot)
        old = self._embeddings.index_select(0, self._index(slots))
        new = embeddings.index_select(0, self._index(list(row_of_slot.values())))
        self._keep(slots, (1 - self._rate) * old + self._rate * new)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        stored = len(self)
        state = {
            "images": self._store.copied(range(stored)),
            "ids": torch.from_numpy(self._ids[:stored].copy()),
            "seen": self._seen,
            "insertion": self._insertion.bit_generator.state,
            "replay": self._replay.bit_generator.state,
        }
        if self._rate is not None:
            state["embeddings"] = self._embeddings[:stored].clone()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        images = state["images"]
        stored = int(images.shape[0])
        # One that was full with less room would go on with slots beyond the next empty one.
        too_few = self.by_number and stored < min(state["seen"], self.capacity)
        if stored > self.capacity or too_few or tuple(images.shape[1:]) != self.image_shape:
            raise InputError(
                f"the saved memory holds {stored} images of shape {tuple(images.shape[1:])}, of {state['seen']} seen; "
                f"this one has room for {self.capacity} of shape {self.image_shape}"
            )
        if self._rate is not None:
            saved = tuple(state["embeddings"].shape) if "embeddings" in state else None
            if saved != (stored, self.embedding_dim):
                raise InputError(
                    f"this memory keeps an embedding of length {self.embedding_dim} per image; the saved one holds "
                    f"{stored} images and {'no embeddings' if saved is None else f'embeddings of shape {saved}'}"
                )
            self._embeddings[:stored] = state["embeddings"].to(self._embeddings.device)
        self._store.clear()
        self._store.write(range(stored), images, state["ids"].tolist())
        self._ids[:] = -1
        self._ids[:stored] = state["ids"].numpy()
        self._slot_of = {image: slot for slot, image in enumerate(state["ids"].tolist())}
        self._seen = state["seen"]
        self._insertion.bit_generator.state = state["insertion"]
        self._replay.bit_generator.state = state["replay"]

    def _keep(self, slots: Sequence[int], embeddings: torch.Tensor) -> None:
        """Write embeddings (n, d) beside the images in different ``slots``."""
        self._embeddings.index_copy_(0, self._index(slots), embeddings)

    def _checked(self, embeddings: torch.Tensor | None, rows: int) -> torch.Tensor:
        return checked_embeddings(embeddings, (rows, self.embedding_dim), self._embeddings.device)

    def _index(self, positions: Sequence[int] | np.ndarray) -> torch.Tensor:
        """Positions as an int64 tensor on the device, without waiting for it."""
        return torch.from_numpy(np.asarray(positions, dtype=np.int64)).to(self._embeddings.device, non_blocking=True)
