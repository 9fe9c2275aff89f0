"""A centroid as `ReferenceMemory` keeps it: with a counter of matches beside its images."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from climb.memory.tier import Tier

TRANSFERRED = -1
"""The count of matches that marks a slot whose centroid was copied to the long-term memory."""


@dataclass(kw_only=True, eq=False)
class Slot:
    """One centroid: value float32 (d,) on the CPU, image ids, last image taken in, and the matches counted."""

    id: int
    value: torch.Tensor
    images: list[int]
    updated: int
    matches: int

    def pull(self, rows: list[torch.Tensor]) -> None:
        """Move toward embeddings (d,) by 0.5 / images held each."""
        rate = 0.5 / len(self.images)
        self.value = (1 - len(rows) * rate) * self.value + rate * torch.stack(rows).sum(0)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes, copied."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Slot:
        """The slot that `state_dict` was taken of, sharing nothing with the state."""
        return cls(**{**state, "value": state["value"].to("cpu", copy=True), "images": list(state["images"])})


def snapshot(slots: list[Slot], embedding_dim: int) -> Tier:
    """What the slots hold now, one row each, in their order."""
    values = [slot.value for slot in slots]
    return Tier(
        values=torch.stack(values) if values else torch.zeros(0, embedding_dim),
        counts=torch.tensor([len(slot.images) for slot in slots], dtype=torch.int64),
        ids=[list(slot.images) for slot in slots],
        updated=torch.tensor([slot.updated for slot in slots], dtype=torch.int64),
        centroids=torch.tensor([slot.id for slot in slots], dtype=torch.int64),
    )
