"""What a memory holds, in one form for every memory: images in groups, with their places in the stream.

A finished run keeps it as `memory.safetensors`, images made small, so that people can look at it after the checkpoint
is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F

TierName = Literal["short-term", "long-term", "stored"]
TIERS: tuple[TierName, ...] = ("stored", "short-term", "long-term")  # by the numbers that ledgers write
SMALL = 48  # pixels: the largest side of an image that is kept for looking at


@dataclass(frozen=True, kw_only=True)
class Group:
    """Images that belong together: those of a centroid, or all of a memory without centroids."""

    tier: TierName
    centroid: int | None
    """The centroid's own id, in order of creation; None where images have no centroid, or it has no id."""
    numbers: list[int]
    """Each image's number in the stream, which began with 0."""
    images: torch.Tensor
    """uint8 (n, 3, H, W)."""
    value: torch.Tensor | None = None
    """float32 (d,): the centroid."""
    embeddings: torch.Tensor | None = None
    """float32 (n, d), one per image, where they are known."""
    born: int | None = None
    """Number of the image that opened the centroid, where it is known."""
    born_before: int | None = None
    """Where it is not: the number of an image that came later than the one that did."""
    updated: int | None = None
    """Number of the last image that the centroid took in, where it is known."""


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """All groups, long-term first and older before newer."""

    seen: int
    """Images of the stream so far."""
    groups: list[Group]

    @property
    def images(self) -> torch.Tensor:
        """All images, group after group; uint8 (n, 3, H, W)."""
        return torch.cat([group.images for group in self.groups]) if self.groups else torch.zeros(0, 3, 1, 1).byte()

    def with_embeddings(self, embeddings: torch.Tensor) -> Remembered:
        """The same with an embedding (n, d) for each of `images`."""
        parts = torch.split(embeddings, [len(group.images) for group in self.groups])
        groups = [replace(group, embeddings=part) for group, part in zip(self.groups, parts, strict=True)]
        return replace(self, groups=groups)

    def smaller(self, side: int = SMALL) -> Remembered:
        """The same with images of at most ``side`` pixels."""
        return replace(self, groups=[replace(group, images=_shrunk(group.images, side)) for group in self.groups])

    def to_tree(self) -> dict[str, Any]:
        """As nested plain data and tensors, to be saved."""
        return {"seen": self.seen, "groups": [dict(vars(group)) for group in self.groups]}

    @classmethod
    def from_tree(cls, tree: dict[str, Any]) -> Remembered:
        """What `to_tree` gave."""
        return cls(seen=tree["seen"], groups=[Group(**group) for group in tree["groups"]])


def remembered(state: dict[str, Any]) -> Remembered | None:
    """What the ``state_dict`` of a memory holds; None where it holds no images that can be shown.

    >>> state = {"images": torch.zeros(2, 3, 8, 8, dtype=torch.uint8), "ids": torch.tensor([5, 3]), "seen": 9}
    >>> found = remembered(state)
    >>> found.seen, found.groups[0].tier, found.groups[0].numbers
    (9, 'stored', [3, 5])
    """
    images = state.get("images")
    if not isinstance(images, torch.Tensor) or images.dtype != torch.uint8 or images.ndim != 4 or len(images) == 0:
        return None
    if {"stm", "ltm", "image_ids"} <= state.keys():
        groups = _listed_slots(state, images)
    elif {"held", "counts", "tier", "values"} <= state.keys():
        groups = _rows(state, images)
    else:
        groups = [_flat(state, images)]
    groups.sort(key=lambda group: (group.tier == "short-term", group.centroid or 0))
    return Remembered(seen=int(state.get("seen", len(images))), groups=groups)


def _rows(state: dict[str, Any], images: torch.Tensor) -> list[Group]:
    """A memory whose centroids are rows: the tier of each, and the ids of its images one row after another."""
    stored = state["pool"] if "pool" in state else torch.cat([state["stm_pool"], state["ltm_pool"]])
    place = {number: position for position, number in enumerate(stored.tolist())}
    events = state["events"].tolist() if isinstance(state.get("events"), torch.Tensor) else []
    created = {centroid: number for number, kind, centroid in events if kind == 0}
    oldest = events[0][0] if events else None  # of a long stream, only the last events are kept
    groups = []
    for row, held in enumerate(state["held"].split(state["counts"].tolist())):
        numbers = held.tolist()
        if not numbers:
            continue
        centroid = int(state["centroid"][row]) if "centroid" in state else None
        noted = int(state["born"][row]) if "born" in state else -1  # -1: it was continued from one without such notes
        born = noted if noted >= 0 else created.get(centroid)
        groups.append(
            Group(
                tier=TIERS[int(state["tier"][row])],
                centroid=centroid,
                numbers=numbers,
                images=images[[place[number] for number in numbers]],
                value=state["values"][row],
                born=born,
                born_before=oldest if born is None else None,
                updated=int(state["updated"][row]) if "updated" in state else None,
            )
        )
    return groups


def _listed_slots(state: dict[str, Any], images: torch.Tensor) -> list[Group]:
    """A memory that lists its centroids one by one."""
    place = {number: position for position, number in enumerate(state["image_ids"])}
    tiers: tuple[tuple[str, TierName], ...] = (("stm", "short-term"), ("ltm", "long-term"))
    return [
        Group(
            tier=tier,
            centroid=slot["id"],
            numbers=list(slot["images"]),
            images=images[[place[number] for number in slot["images"]]],
            value=slot["value"],
            updated=slot["updated"],
        )
        for key, tier in tiers
        for slot in state[key]
        if slot["images"]
    ]


def _flat(state: dict[str, Any], images: torch.Tensor) -> Group:
    """A memory without structure, oldest image first."""
    numbers = state["ids"] if isinstance(state.get("ids"), torch.Tensor) else torch.arange(len(images))
    order = numbers.argsort()
    embeddings = state.get("embeddings")
    return Group(
        tier="stored",
        centroid=None,
        numbers=numbers[order].tolist(),
        images=images[order],
        embeddings=embeddings[order] if isinstance(embeddings, torch.Tensor) else None,
    )


def _shrunk(images: torch.Tensor, side: int) -> torch.Tensor:
    largest = max(images.shape[-2:])
    if largest <= side or len(images) == 0:
        return images
    size = [max(1, round(length * side / largest)) for length in images.shape[-2:]]
    small = F.interpolate(images.float(), size=size, mode="bilinear", antialias=True, align_corners=False)
    return small.round_().clamp_(0, 255).to(torch.uint8)
