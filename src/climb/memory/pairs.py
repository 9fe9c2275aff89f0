"""The most similar pairs: among thousands of centroids, and in each of many small groups."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

from climb.memory.store import index_on
from climb.precision import full_float32

AT_ONCE = 64
"""Outdated entries recomputed at a time when the best entry is outdated."""

SAVED = ("unit", "cosine", "partner", "exact")  # tensors of the table in a saved state


def most_similar(cosines: torch.Tensor) -> tuple[int, int]:
    """The two rows with the largest cosine among all pairs (n, n), in order."""
    pairs = cosines.clone().fill_diagonal_(-math.inf)
    one, other = sorted(divmod(int(pairs.argmax()), len(pairs)))
    return one, other


class ClosestPair:
    """The most similar pair of centroids, from a table of nearest neighbours.

    The table has each centroid's most similar other centroid and their cosine. New and moved centroids are compared
    with all others in one matrix product. If the partner of an entry moves away or is removed, the entry becomes an
    upper bound; it is recomputed only when it is the largest of all.

    Args:
        most: maximum number of centroids.
        dim: length of a centroid.
        device: device of the table.

    >>> pairs = ClosestPair(3, 2, "cpu")
    >>> pairs.put([0, 1, 2], torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2]]))
    >>> sorted(pairs.closest())
    [0, 2]
    >>> pairs.put([2], torch.tensor([[0.1, 1.0]]))
    >>> sorted(pairs.closest())
    [1, 2]
    """

    def __init__(self, most: int, dim: int, device: torch.device | str) -> None:
        self._unit = torch.zeros((most, dim), device=device)  # unit vectors, one slot per centroid
        self._taken = torch.zeros(most, dtype=torch.bool, device=device)
        self._cosine = torch.full((most,), -math.inf, device=device)  # to the partner, or an upper bound
        self._partner = torch.zeros(most, dtype=torch.int64, device=device)
        self._exact = torch.ones(most, dtype=torch.bool, device=device)  # False: the cosine is an upper bound
        self._row_of = [-1] * most  # slot -> row
        self._slot_of: dict[int, int] = {}  # row -> slot
        self._free = list(range(most - 1, -1, -1))

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return sum(part.nbytes for part in (self._unit, self._taken, self._cosine, self._partner, self._exact))

    def put(self, rows: Sequence[int], values: torch.Tensor) -> None:
        """Add or move centroids (n, d). Never waits for the device."""
        if not rows:  # a memory loaded before its first promotion
            return
        for row in rows:
            if row not in self._slot_of:
                slot = self._free.pop()
                self._slot_of[row], self._row_of[slot] = slot, row
        slots = index_on(self._unit.device, [self._slot_of[row] for row in rows])
        self._unit.index_copy_(0, slots, F.normalize(values, dim=1))
        self._taken.index_fill_(0, slots, True)
        changed = torch.zeros_like(self._taken).index_fill_(0, slots, True)
        self._exact &= ~changed[self._partner]  # the comparison below may make it exact again
        for some in torch.split(slots, 512):
            cosines = self._look_up(some)
            closest, which = cosines.max(0)
            # An equal cosine changes no partner, but makes a bound exact again.
            better = (closest >= self._cosine) & ~changed
            self._cosine = torch.where(better, closest, self._cosine)
            self._partner = torch.where(better, some[which], self._partner)
            self._exact |= better

    def drop(self, row: int) -> None:
        """Remove a centroid."""
        slot = self._slot_of.pop(row)
        self._row_of[slot] = -1
        self._free.append(slot)
        self._taken[slot] = False
        self._cosine[slot] = -math.inf
        self._exact &= self._partner != slot

    def clear(self) -> None:
        """Remove all centroids."""
        for row in list(self._slot_of):
            self.drop(row)

    def closest(self) -> tuple[int, int]:
        """The rows of the two most similar of at least two centroids. Waits for the device."""
        while True:
            best = int(self._cosine.argmax())
            if bool(self._exact[best]):
                return self._row_of[best], self._row_of[int(self._partner[best])]
            bounds = self._cosine.masked_fill(self._exact, -math.inf)
            doubtful = bounds.topk(min(AT_ONCE, len(bounds)))
            self._look_up(doubtful.indices[doubtful.values > -math.inf])

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The complete table."""
        # Recomputed cosines would round differently and decide near ties otherwise.
        return {
            **{name: getattr(self, f"_{name}").clone() for name in SAVED},
            "rows": torch.tensor(self._row_of, dtype=torch.int64),
            "free": torch.tensor(self._free, dtype=torch.int64),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        for name in SAVED:
            getattr(self, f"_{name}").copy_(state[name])
        self._taken.copy_(state["rows"] >= 0)
        self._row_of = state["rows"].tolist()
        self._slot_of = {row: slot for slot, row in enumerate(self._row_of) if row >= 0}
        self._free = state["free"].tolist()

    def _look_up(self, slots: torch.Tensor) -> torch.Tensor:
        """Compare some centroids with all others and set their entries; returns the cosines (n, most)."""
        with full_float32():
            cosines = self._unit[slots] @ self._unit.T
        cosines.masked_fill_(~self._taken, -math.inf)
        cosines.scatter_(1, slots[:, None], -math.inf)  # itself
        nearest, partner = cosines.max(1)
        self._cosine.index_copy_(0, slots, nearest)
        self._partner.index_copy_(0, slots, partner)
        self._exact.index_fill_(0, slots, True)
        return cosines


def later_of_closest(embeddings: torch.Tensor, counts: Sequence[int]) -> list[int]:
    """For each group, the position of the later one of its two most similar members, by cosine.

    Groups are padded to the largest. Takes one synchronisation.

    Args:
        embeddings: the members (n, d), group after group.
        counts: members per group, at least two each and n in total.

    >>> later_of_closest(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 2.0], [1.0, 0.0], [0.0, 1.0]]), [3, 2])
    [2, 1]
    """
    groups = torch.split(F.normalize(embeddings.float(), dim=1), list(counts))
    padded = pad_sequence(list(groups), batch_first=True)  # (groups, most, d)
    position = torch.arange(padded.shape[1], device=padded.device)
    exists = position < torch.tensor(list(counts)).to(padded.device)[:, None]  # (groups, most)
    pair = (position[:, None] < position) & exists[:, None, :]
    with full_float32():
        cosines = torch.bmm(padded, padded.transpose(1, 2)).masked_fill(~pair, -math.inf)
    later: list[int] = (cosines.flatten(1).argmax(1) % padded.shape[1]).tolist()
    return later
