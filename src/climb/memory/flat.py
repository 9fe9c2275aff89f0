"""Flat buffers, which keep images in slots without structure: their base class, FIFO, and reservoir sampling."""

from __future__ import annotations

import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from climb.arguments import check_room, checked
from climb.errors import InputError
from climb.memory.contract import Embed, InsertReport, ReplayBatch, Space, memory
from climb.memory.snapshot import Group, MemorySnapshot, ShowsGroups
from climb.memory.store import index_on, open_store
from climb.memory.validate import check_images, checked_embeddings
from climb.parallel import SINGLE
from climb.parallel import Group as ProcessGroup
from climb.seeds import numpy_generator


class FlatMemory(ShowsGroups, ABC):
    """A memory without structure. Subclasses define `_slots`, which chooses a slot for each image.

    A subclass that chooses by embedding sets ``space`` to "projector" or "backbone"; `_slots` then receives the
    embeddings of the mini-batch.

    Args:
        capacity: maximum number of stored images.
        image_shape: (3, H, W).
        embedding_dim: length of an embedding.
        embedding_rate: None stores images only. A number r in 0..1 also stores one embedding per image, which every
            replay moves: ``stored = (1 - r) stored + r z``. CLA-R (Cignoni et al., 2025) distils from these, r = 0.5.
        seed: seed of the random choices.
        device: device of images and embeddings.
        group: the processes over which the images are spread.

    >>> class FarthestMemory(FlatMemory):
    ...     space = "backbone"
    ...
    ...     def _slots(self, images, embeddings, embed):
    ...         order = embeddings.norm(dim=1).argsort(descending=True)[: self.capacity].tolist()
    ...         return [order.index(row) if row in order else None for row in range(len(images))]
    """

    settings: ClassVar[tuple[str, ...]] = ("capacity",)
    space: ClassVar[Space | None] = None
    inserts: ClassVar[Literal["after", "before"]] = "after"
    bounded: ClassVar[bool] = True
    sharded: ClassVar[bool] = False
    """Whether the constructor takes ``group``, and its processes share the images."""
    by_number: ClassVar[bool] = False
    """Whether `_slots` depends on the number of images seen. Such a memory is full after ``capacity`` images."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Accept subclasses whose `_slots` has no ``embeddings``, for one more release."""
        super().__init_subclass__(**arguments)
        slots: Any = cls._slots
        try:
            inspect.signature(slots).bind(None, None, None, None)
        except TypeError:
            warnings.warn(
                f"{cls.__name__}._slots(images, embed) must become _slots(images, embeddings, embed); the next release "
                "requires it",
                DeprecationWarning,
                stacklevel=3,  # the class statement, beyond `ABCMeta`
            )
            # A subclass may call this by the old signature, too.
            cls._slots = lambda self, images, *rest: slots(self, images, rest[-1])  # type: ignore[method-assign]

    @checked(capacity=1, image_shape=1, embedding_dim=1)
    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        embedding_dim: int,
        *,
        embedding_rate: float | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        group: ProcessGroup = SINGLE,
    ) -> None:
        if not 0 <= (embedding_rate or 0) <= 1:
            raise InputError(f"embedding_rate must be None or in 0..1; given {embedding_rate}")
        self.image_shape = tuple(image_shape)
        self.embedding_dim = embedding_dim
        self._rate = embedding_rate
        self._store = open_store(capacity, self.image_shape, device, group)
        self._embeddings = torch.zeros((0, embedding_dim), dtype=torch.float32, device=device)
        if embedding_rate is not None:
            self.space = self.space or "projector"  # type: ignore[misc]  # set per instance
            check_room(4 * embedding_dim * capacity, f"{capacity} embeddings of length {embedding_dim}", device)
            self._embeddings = torch.zeros((capacity, embedding_dim), dtype=torch.float32, device=device)
        self._ids = np.full(capacity, -1, dtype=np.int64)  # by slot; slots fill from 0 up
        self._slot_of: dict[int, int] = {}  # image id -> slot, for all stored images
        self._seen = 0
        self._insertion = numpy_generator(seed, "memory")
        self._replay = numpy_generator(seed, "replay")

    @abstractmethod
    def _slots(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, embed: Embed | None
    ) -> Sequence[int | None]:
        """A slot for each new image, in order; None rejects an image.

        Empty slots must be filled in order. If a slot is returned twice, the later image gets it.

        Args:
            images: uint8 (n, 3, H, W).
            embeddings: float32 (n, d), on the device; None if ``space`` is None. The caller may overwrite them later.
            embed: the engine's encoder, see `Memory.space`.
        """

    @property
    def capacity(self) -> int:
        """Maximum number of stored images."""
        return len(self._ids)

    @property
    def nbytes(self) -> int:
        """Bytes of images and stored embeddings, reserved space included."""
        return self._store.nbytes + self._embeddings.nbytes

    def __len__(self) -> int:
        return len(self._slot_of)

    def stored_ids(self) -> list[int]:
        """Ids of all stored images: their positions in the stream."""
        return list(self._slot_of)

    def images_of(self, ids: list[int]) -> torch.Tensor:
        """A copy of the stored images of these ids, uint8 (n, 3, H, W)."""
        return self._store.get([self._slot_of[image] for image in ids])

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None = None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Insert one stream mini-batch: uint8 images (n, 3, H, W); embeddings (n, d) unless ``space`` is None."""
        check_images(images, self.image_shape)
        embeddings = None if self.space is None else self._checked(embeddings, len(images))
        report = {"novel": 0, "replaced": 0, "rejected": 0}
        row_of_slot: dict[int, int] = {}  # a later image may take the slot of an earlier one
        for row, slot in enumerate(self._slots(images, embeddings, embed)):
            if slot is None:
                report["rejected"] += 1
                continue
            if not 0 <= slot <= min(len(self), self.capacity - 1):  # draws rely on the empty slots being the last ones
                raise InputError(
                    f"{type(self).__name__}._slots gave slot {slot} with {len(self)} of {self.capacity} images stored; "
                    f"allowed: 0 to {self.capacity - 1}, empty slots in order, or None"
                )
            gone = self._slot_of.pop(int(self._ids[slot]), None)  # None for an empty slot
            report["novel" if gone is None else "replaced"] += 1
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

    @checked(n=0)
    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` different stored images, drawn uniformly; None while fewer are stored."""
        if len(self) < max(n, 1):
            return None
        slots = self._replay.choice(len(self), size=n, replace=False)
        images, ids = self._store.get(slots.tolist()), torch.from_numpy(self._ids[slots])
        return ReplayBatch(images=images, ids=ids, embeddings=None if self._rate is None else self._stored(slots))

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Move stored embeddings toward new ones (n, d); ids of images no longer stored are ignored.

        If an id occurs twice, its last embedding counts. Rows with NaN or infinity leave the stored one as it is.
        """
        if self._rate is None:
            return
        embeddings = self._checked(embeddings, len(ids))
        row_of_slot = {self._slot_of[image]: row for row, image in enumerate(ids.tolist()) if image in self._slot_of}
        if not row_of_slot:
            return
        slots = list(row_of_slot)
        new = embeddings.index_select(0, index_on(embeddings.device, list(row_of_slot.values())))
        old = self._stored(slots)
        moved = (1 - self._rate) * old + self._rate * new
        self._keep(slots, torch.where(new.isfinite().all(dim=1, keepdim=True), moved, old))

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
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

    @classmethod
    def snapshot_of(cls, state: dict[str, Any]) -> MemorySnapshot:
        """The images of a `state_dict` as one group, oldest first."""
        order = state["ids"].argsort()
        group = Group(
            tier="stored",
            centroid=None,
            numbers=state["ids"][order].tolist(),
            images=state["images"][order.to(state["images"].device)],
            embeddings=state["embeddings"][order.to(state["embeddings"].device)] if "embeddings" in state else None,
        )
        return MemorySnapshot(seen=state["seen"], groups=[group])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        images = state["images"]
        stored = int(images.shape[0])
        # A memory that was full at a smaller capacity would continue beyond the next empty slot.
        too_few = self.by_number and stored < min(state["seen"], self.capacity)
        if stored > self.capacity or too_few or tuple(images.shape[1:]) != self.image_shape:
            raise InputError(
                f"the saved memory holds {stored} images of shape {tuple(images.shape[1:])}, of {state['seen']} seen; "
                f"this one has a capacity of {self.capacity} images of shape {self.image_shape}"
            )
        if self._rate is not None:
            saved = tuple(state["embeddings"].shape) if "embeddings" in state else None
            if saved != (stored, self.embedding_dim):
                raise InputError(
                    f"this memory stores an embedding of length {self.embedding_dim} per image; the saved one has "
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

    def _stored(self, slots: Sequence[int] | np.ndarray) -> torch.Tensor:
        return self._embeddings.index_select(0, index_on(self._embeddings.device, slots))

    def _keep(self, slots: Sequence[int], embeddings: torch.Tensor) -> None:
        """Write the embeddings (n, d) of the images in ``slots``, which are different."""
        self._embeddings.index_copy_(0, index_on(self._embeddings.device, slots), embeddings)

    def _checked(self, embeddings: torch.Tensor | None, rows: int) -> torch.Tensor:
        return checked_embeddings(embeddings, (rows, self.embedding_dim), self._embeddings.device)


@memory("fifo")
class FifoMemory(FlatMemory):
    """Keeps the last ``capacity`` images (the buffer of CLA-E and CLA-R; Cignoni et al., 2025).

    With ``embedding_rate=0.5`` it also stores a running average of each image's embeddings, the alignment target of
    CLA-R. The CLIMB paper describes that target as the embedding of the first pass, which is ``embedding_rate=0``.

    >>> memory = FifoMemory(2, (3, 8, 8), 16)
    >>> for shade in range(3):
    ...     report = memory.insert(torch.full((1, 3, 8, 8), shade, dtype=torch.uint8))
    >>> report.replaced, sorted(memory.sample(2).ids.tolist())
    (1, [1, 2])
    """

    sharded: ClassVar[bool] = True
    by_number: ClassVar[bool] = True

    def _slots(self, images: torch.Tensor, embeddings: torch.Tensor | None, embed: Embed | None = None) -> list[int]:
        return [number % self.capacity for number in range(self._seen, self._seen + len(images))]


@memory("reservoir")
class ReservoirMemory(FlatMemory):
    """Reservoir sampling (Vitter, 1985): stores each image seen so far with the same probability, ``capacity / seen``.

    >>> memory = ReservoirMemory(5, (3, 8, 8), 16)
    >>> report = memory.insert(torch.zeros(100, 3, 8, 8, dtype=torch.uint8))
    >>> report.novel, report.novel + report.replaced + report.rejected, len(memory)
    (5, 100, 5)
    """

    sharded: ClassVar[bool] = True
    by_number: ClassVar[bool] = True

    def _slots(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, embed: Embed | None = None
    ) -> list[int | None]:
        numbers = range(self._seen, self._seen + len(images))
        slots = [n if n < self.capacity else int(self._insertion.integers(n + 1)) for n in numbers]
        return [slot if slot < self.capacity else None for slot in slots]
