"""The two most similar of thousands of centroids, by a table of nearest neighbours that is kept up to date."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from climb.precision import full_float32

AT_ONCE = 64
"""Entries looked up anew at a time when the best one turns out to be out of date."""


class ClosestPair:
    """For each centroid the cosine to its most similar other one, and which that is.

    Centroids that come or move are compared with all others, in one matrix product. An entry whose partner has moved
    away or gone is not looked up again at once: what it says is then still a bound from above, and matters only if
    it becomes the best of all.

    Args:
        most: centroids at most.
        dim: their length.
        device: where they live.

    >>> pairs = ClosestPair(3, 2, "cpu")
    >>> pairs.put([0, 1, 2], torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2]]))
    >>> sorted(pairs.closest())
    [0, 2]
    >>> pairs.put([2], torch.tensor([[0.1, 1.0]]))
    >>> sorted(pairs.closest())
    [1, 2]
    """

    def __init__(self, most: int, dim: int, device: torch.device | str) -> None:
        self._unit = torch.zeros((most, dim), device=device)  # directions, one slot a centroid
        self._taken = torch.zeros(most, dtype=torch.bool, device=device)
        self._cosine = torch.full((most,), -math.inf, device=device)  # to the most similar other one, or more
        self._partner = torch.zeros(most, dtype=torch.int64, device=device)
        self._exact = torch.ones(most, dtype=torch.bool, device=device)  # False: partner gone, cosine a bound
        self._row_of = [-1] * most  # slot -> row
        self._slot_of: dict[int, int] = {}  # row -> slot
        self._free = list(range(most - 1, -1, -1))

    @property
    def nbytes(self) -> int:
        """Bytes reserved."""
        tensors = (self._unit, self._taken, self._cosine, self._partner, self._exact)
        return sum(tensor.nbytes for tensor in tensors)

    def put(self, rows: Sequence[int], values: torch.Tensor) -> None:
        """Centroids (n, d) that are new or have moved. Waits for nothing."""
        if not rows:  # a memory that is loaded before its first promotion
            return
        for row in rows:
            if row not in self._slot_of:
                slot = self._free.pop()
                self._slot_of[row], self._row_of[slot] = slot, row
        slots = self._index([self._slot_of[row] for row in rows])
        self._unit.index_copy_(0, slots, F.normalize(values, dim=1))
        self._taken.index_fill_(0, slots, True)
        changed = torch.zeros_like(self._taken).index_fill_(0, slots, True)
        self._exact &= ~changed[self._partner]  # unless the comparison below finds that the partner has come closer
        for some in torch.split(slots, 512):
            cosines = self._look_up(some)
            closest, which = cosines.max(0)
            # One at the same distance as before is no news, but it makes a bound exact again.
            better = (closest >= self._cosine) & ~changed
            self._cosine = torch.where(better, closest, self._cosine)
            self._partner = torch.where(better, some[which], self._partner)
            self._exact |= better

    def drop(self, row: int) -> None:
        """A centroid is gone."""
        slot = self._slot_of.pop(row)
        self._row_of[slot] = -1
        self._free.append(slot)
        self._taken[slot] = False  # whatever its direction is, no one is compared with it
        self._cosine[slot] = -math.inf
        self._exact &= self._partner != slot

    def clear(self) -> None:
        """All are gone."""
        for row in list(self._slot_of):
            self.drop(row)

    def closest(self) -> tuple[int, int]:
        """The rows of the two most similar centroids. There must be two. Waits for the device."""
        while True:
            best = int(self._cosine.argmax())
            if bool(self._exact[best]):
                return self._row_of[best], self._row_of[int(self._partner[best])]
            bounds = self._cosine.masked_fill(self._exact, -math.inf)
            doubtful = bounds.topk(min(AT_ONCE, len(bounds)))
            self._look_up(doubtful.indices[doubtful.values > -math.inf])

    def state_dict(self) -> dict[str, torch.Tensor]:
        """All of it. Computed anew, cosines would have other last bits, and of near ties another one would win."""
        return {
            "unit": self._unit.clone(),
            "cosine": self._cosine.clone(),
            "partner": self._partner.clone(),
            "exact": self._exact.clone(),
            "rows": torch.tensor(self._row_of, dtype=torch.int64),
            "free": torch.tensor(self._free, dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._unit.copy_(state["unit"])
        self._cosine.copy_(state["cosine"])
        self._partner.copy_(state["partner"])
        self._exact.copy_(state["exact"])
        self._taken.copy_(state["rows"] >= 0)
        self._row_of = state["rows"].tolist()
        self._slot_of = {row: slot for slot, row in enumerate(self._row_of) if row >= 0}
        self._free = state["free"].tolist()

    def _look_up(self, slots: torch.Tensor) -> torch.Tensor:
        """Compare some centroids with all others and set their entries; the cosines (n, most)."""
        with full_float32():
            cosines = self._unit[slots] @ self._unit.T
        cosines.masked_fill_(~self._taken, -math.inf)
        cosines.scatter_(1, slots[:, None], -math.inf)  # itself
        nearest, partner = cosines.max(1)
        self._cosine.index_copy_(0, slots, nearest)
        self._partner.index_copy_(0, slots, partner)
        self._exact.index_fill_(0, slots, True)
        return cosines

    def _index(self, slots: Sequence[int]) -> torch.Tensor:
        return torch.tensor(slots, dtype=torch.int64).to(self._unit.device, non_blocking=True)
