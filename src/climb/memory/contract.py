"""The contract of a memory, built in or third-party.

A memory receives one stream mini-batch at a time, keeps at most ``capacity`` images, and returns random ones for
replay. It never sees a label or a task number. `climb.testing.check_memory` drives a memory through random traffic
and fails on the first violated contract.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch

from climb.registry import Registry

Embed = Callable[[torch.Tensor], torch.Tensor]
"""The engine's no-gradient encoder: uint8 images (n, 3, H, W) to float32 embeddings (n, d)."""

Space = Literal["projector", "backbone"]


@dataclass(frozen=True, kw_only=True)
class InsertReport:
    """Counts of what happened to the images of one `insert`.

    ``novel + joined + replaced + rejected`` is the number of inserted images.
    """

    novel: int = 0
    """Images that created a centroid or, in a flat buffer, filled an empty slot."""
    joined: int = 0
    """Images added to an existing centroid."""
    replaced: int = 0
    """Images that replaced a stored image."""
    rejected: int = 0
    """Images that were not stored."""
    evicted: int = 0
    """Centroids removed with their images to free a place."""
    promoted: int = 0
    """Centroids moved from short-term to long-term memory."""
    merged: int = 0
    """Centroids merged into another centroid."""
    pruned: int = 0
    """Prune events."""


@dataclass(frozen=True, kw_only=True)
class ReplayBatch:
    """Stored images drawn for replay."""

    images: torch.Tensor
    """uint8 (n, 3, H, W), on the memory's device."""
    ids: torch.Tensor
    """int64 (n,), on the CPU: identify stored images; they are not positions."""
    embeddings: torch.Tensor | None = None
    """float32 (n, d), if the memory stores an embedding per image."""


@runtime_checkable
class Memory(Protocol):
    """A memory of stored images.

    Some more members are optional. ``summary() -> dict[str, float]`` returns numbers for the journal and its plots.
    `climb.memory.ShowsGroups` adds ``groups()``, for galleries and maps of the memory. Novelty scores need
    ``stored_ids() -> list[int]`` and ``images_of(ids) -> Tensor``, which must not change later replay.
    """

    space: ClassVar[Space | None]
    """Which embeddings `insert` and `refresh` receive; None for none. ``embed`` uses the same space; for None,
    the backbone."""
    inserts: ClassVar[Literal["after", "before"]]
    """Whether a mini-batch is inserted after or before its training passes."""
    bounded: ClassVar[bool]
    """Whether ``len(memory) <= capacity`` always holds."""

    @property
    def capacity(self) -> int:
        """Maximum number of stored images, if the memory is bounded."""

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors for images and embeddings, reserved space included."""

    def __len__(self) -> int:
        """Number of stored images. A bounded memory never exceeds ``capacity``, not even within a mini-batch."""

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Insert one stream mini-batch: uint8 images (n, 3, H, W), float32 embeddings (n, d)."""

    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` different stored images at random; None while fewer are stored."""

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Update the embeddings (n, d) of replayed images, in any order. Ids of images no longer stored are ignored."""

    def state_dict(self) -> dict[str, Any]:
        """The complete state as copies: tensors, numbers, strings, and lists and dicts of these."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; the memory then continues exactly as the saved one."""


_METHODS = ("insert", "sample", "refresh", "state_dict", "load_state_dict")

MEMORIES = Registry[type[Memory]](
    "memory",
    builtin=["climb.memory", "climb.contrib.released"],
    accepts=lambda part: isinstance(part, type) and all(hasattr(part, name) for name in _METHODS),
    expects="a class that follows climb.memory.Memory",
)
"""The memories by name."""

memory = MEMORIES.register
"""Decorator ``@memory("name")`` that registers a class."""
