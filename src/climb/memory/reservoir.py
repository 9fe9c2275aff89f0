"""Reservoir sampling (Vitter, 1985): at any time a uniform sample of everything seen."""

from __future__ import annotations

from climb.memory.flat import FlatMemory


class ReservoirMemory(FlatMemory):
    """Each image seen so far is stored with the same probability ``capacity / seen``.

    >>> import torch
    >>> memory = ReservoirMemory(5, (3, 8, 8), 16)
    >>> report = memory.insert(torch.zeros(100, 3, 8, 8, dtype=torch.uint8))
    >>> report.novel, report.novel + report.replaced + report.rejected, len(memory)
    (5, 100, 5)
    """

    def _place(self, number: int) -> int | None:
        slot = int(self._insertion.integers(number + 1))
        return slot if slot < self.capacity else None
