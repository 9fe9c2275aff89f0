"""What every memory promises, ours and third parties' alike.

A memory is handed the images of one stream mini-batch at a time, keeps at most ``capacity`` of them, and gives
random ones back for replay. It never sees a label or a task number. `climb.memory.check_memory` drives any
implementation through random traffic and fails on the first broken promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch

Embed = Callable[[torch.Tensor], torch.Tensor]
"""The engine's no-gradient encoder: uint8 images (n, 3, H, W) to float32 embeddings (n, d)."""

Space = Literal["projector", "backbone"]


@dataclass(frozen=True, kw_only=True)
class InsertReport:
    """What became of the images of one `insert`.

    ``novel + joined + replaced + rejected`` is the number of images given.
    """

    novel: int = 0
    """Images that opened a place of their own (a new centroid; any stored image in a flat buffer that grows)."""
    joined: int = 0
    """Images added to a centroid that already existed."""
    replaced: int = 0
    """Images that took the place of a stored one."""
    rejected: int = 0
    """Images that were not kept."""
    evicted: int = 0
    """Centroids removed, with their images, to make room."""
    promoted: int = 0
    """Centroids moved from short-term to long-term memory."""
    merged: int = 0
    """Centroids absorbed by another."""
    pruned: int = 0
    """Prune events."""


@dataclass(frozen=True, kw_only=True)
class ReplayBatch:
    """Images drawn from a memory for replay."""

    images: torch.Tensor
    """uint8 (n, 3, H, W), on the memory's device."""
    ids: torch.Tensor
    """int64 (n,), on the CPU: names of stored images, not positions."""
    embeddings: torch.Tensor | None = None
    """float32 (n, d), where the memory stores an embedding per image."""


@runtime_checkable
class Memory(Protocol):
    """The memory socket: what do we keep?"""

    space: ClassVar[Space | None]
    """Which embeddings `insert` and `refresh` are given, or None when they are not used. ``embed`` gives the same kind,
    and the backbone's where it is None."""
    inserts: ClassVar[Literal["after", "before"]]
    """Whether a mini-batch is inserted after or before the passes over it."""
    bounded: ClassVar[bool]
    """Whether ``len(memory) <= capacity`` is promised."""

    @property
    def capacity(self) -> int:
        """The most images ever stored, where the memory is bounded."""

    @property
    def nbytes(self) -> int:
        """Bytes held for images and embeddings, stored or reserved."""

    def __len__(self) -> int:
        """Stored images; where the memory is bounded never above ``capacity``, after every single image."""

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Take one stream mini-batch: uint8 images (n, 3, H, W), float32 embeddings (n, d)."""

    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` different stored images at random, or None until that many are stored."""

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """New embeddings (n, d) of replayed images, in any order; ids replaced since are ignored."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes: tensors, numbers, strings, lists and dicts of those."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly where `state_dict` was taken."""
