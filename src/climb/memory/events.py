"""What became of centroids, as far back as there is room for it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch

EVENTS = ("created", "evicted", "promoted", "merged", "pruned")
EVENTS_KEPT = 65_536  # the most recent ones: a stream may be endless, the memory is not

Event = tuple[int, str, int]
"""Image number, kind, centroid id."""


class EventLog:
    """The most recent events, in 24 bytes each.

    >>> log = EventLog(kept=2)
    >>> log.extend([(3, "created", 0), (5, "created", 1), (9, "promoted", 0)])
    >>> log.listed()
    [(5, 'created', 1), (9, 'promoted', 0)]
    """

    def __init__(self, kept: int = EVENTS_KEPT) -> None:
        self._kept = kept
        self._rows = np.zeros((min(kept, 256), 3), dtype=np.int64)
        self._written = 0

    def append(self, number: int, kind: str, centroid: int) -> None:
        """One more event; the oldest makes room for it."""
        if self._written == len(self._rows) < self._kept:
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])[: self._kept]
        self._rows[self._written % len(self._rows)] = (number, EVENTS.index(kind), centroid)
        self._written += 1

    def extend(self, events: Iterable[Event]) -> None:
        """Several more events."""
        for event in events:
            self.append(*event)

    def clear(self) -> None:
        """Forget all."""
        self._written = 0

    def listed(self) -> list[Event]:
        """The events, oldest first."""
        return [(number, EVENTS[kind], centroid) for number, kind, centroid in self._ordered().tolist()]

    def to_tensor(self) -> torch.Tensor:
        """The same as int64 (n, 3), kinds by their place in `EVENTS`."""
        return torch.from_numpy(self._ordered().copy())

    def from_tensor(self, events: torch.Tensor) -> None:
        """Continue where `to_tensor` was taken."""
        self.clear()
        self.extend((number, EVENTS[kind], centroid) for number, kind, centroid in events.tolist())

    def _ordered(self) -> np.ndarray:
        if self._written <= len(self._rows):
            return self._rows[: self._written]
        return np.roll(self._rows, -(self._written % len(self._rows)), axis=0)
