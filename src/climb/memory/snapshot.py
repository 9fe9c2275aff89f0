"""Snapshots of a memory: one tier of centroids, and all stored images in groups, the same form for every memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

TierName = Literal["short-term", "long-term", "stored"]


@dataclass(frozen=True, kw_only=True)
class Tier:
    """The short-term or the long-term memory at one moment, one row per centroid.

    The oldest centroid comes first; in `ReferenceMemory`, the one in the first slot.
    """

    values: torch.Tensor
    """float32 (n, d): the centroids, in the space of the embeddings."""
    counts: torch.Tensor
    """int64 (n,): number of images per centroid."""
    ids: list[list[int]]
    """Ids of each centroid's images; in the short-term memory the anchor comes first."""
    updated: torch.Tensor
    """int64 (n,): number of the last image that joined."""
    centroids: torch.Tensor
    """int64 (n,): ids of the centroids, in order of creation over the life of the memory."""

    @classmethod
    def of(cls, values: torch.Tensor, held: list[list[int]], updated: Any, centroids: Any) -> Tier:
        """A tier of centroids with these values (n, d), image ids, last images (n,) and ids (n,); copies."""
        return cls(
            values=values,
            counts=torch.tensor([len(ids) for ids in held], dtype=torch.int64),
            ids=[list(ids) for ids in held],
            updated=torch.tensor(updated, dtype=torch.int64),
            centroids=torch.tensor(centroids, dtype=torch.int64),
        )


@dataclass(frozen=True, kw_only=True)
class Group:
    """Images that belong together: those of one centroid, or all images of a memory without centroids."""

    tier: TierName
    centroid: int | None
    """Id of the centroid, in order of creation; None without a centroid, or if it has no id."""
    numbers: list[int]
    """Position of each image in the stream, counted from 0."""
    images: torch.Tensor
    """uint8 (n, 3, H, W)."""
    value: torch.Tensor | None = None
    """float32 (d,): the centroid."""
    embeddings: torch.Tensor | None = None
    """float32 (n, d): one embedding per image, if known."""
    born: int | None = None
    """Number of the image that created the centroid, if known."""
    born_before: int | None = None
    """If ``born`` is unknown: the centroid was created before the image of this number."""
    updated: int | None = None
    """Number of the last image that joined the centroid, if known."""


@dataclass(frozen=True, kw_only=True)
class MemorySnapshot:
    """All groups of a memory, long-term groups first and older centroids before newer ones."""

    seen: int
    """Images inserted so far."""
    groups: list[Group]

    @property
    def images(self) -> torch.Tensor:
        """All images, group after group; uint8 (n, 3, H, W)."""
        return torch.cat([group.images for group in self.groups]) if self.groups else torch.zeros(0, 3, 1, 1).byte()

    def with_embeddings(self, embeddings: torch.Tensor) -> MemorySnapshot:
        """A copy with an embedding (n, d) for each of `images`."""
        parts = torch.split(embeddings, [len(group.images) for group in self.groups])
        groups = [replace(group, embeddings=part) for group, part in zip(self.groups, parts, strict=True)]
        return replace(self, groups=groups)


def take_snapshot(memory_class: type, state: dict[str, Any]) -> MemorySnapshot | None:
    """The snapshot in the ``state_dict`` of a memory of that class; None without images, or if the class shows none.

    >>> from climb.memory import FifoMemory
    >>> memory = FifoMemory(2, (3, 8, 8), 16)
    >>> report = memory.insert(torch.zeros(3, 3, 8, 8, dtype=torch.uint8))
    >>> snapshot = take_snapshot(FifoMemory, memory.state_dict())
    >>> snapshot.seen, snapshot.groups[0].tier, snapshot.groups[0].numbers
    (3, 'stored', [1, 2])
    """
    if not hasattr(memory_class, "snapshot_of"):
        return None
    snapshot: MemorySnapshot = memory_class.snapshot_of(state)
    groups = [group for group in snapshot.groups if len(group.images)]
    groups.sort(key=lambda group: (group.tier == "short-term", group.centroid or 0))
    return replace(snapshot, groups=groups) if groups else None


def saved_images(state: dict[str, Any]) -> torch.Tensor | None:
    """All images (n, 3, H, W) in the ``state_dict`` of a memory, in the order of the state; None if it has none."""
    return state.get("images")


class ShowsGroups:
    """Adds `groups` to a memory that defines the class method ``snapshot_of(state) -> MemorySnapshot``."""

    def groups(self) -> list[Group]:
        """All stored images, in one group per centroid or in a single group; copies."""
        snapshot = take_snapshot(type(self), self.state_dict())  # type: ignore[attr-defined]
        return [] if snapshot is None else snapshot.groups


def images_by_id(images: torch.Tensor, ids: Iterable[int]) -> Callable[[list[int]], torch.Tensor]:
    """A function that selects images by their ids; ``ids`` lists those of ``images`` (n, 3, H, W) in order."""
    position = {image: place for place, image in enumerate(ids)}
    return lambda wanted: images[[position[image] for image in wanted]]
