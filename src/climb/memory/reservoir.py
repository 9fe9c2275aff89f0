"""Reservoir sampling (Vitter, 1985): at any time a uniform sample of everything seen."""

from __future__ import annotations

from typing import ClassVar

import torch

from climb.memory.contract import Embed
from climb.memory.flat import FlatMemory


class ReservoirMemory(FlatMemory):
    """Each image seen so far is stored with the same probability ``capacity / seen``.

    >>> memory = ReservoirMemory(5, (3, 8, 8), 16)
    >>> report = memory.insert(torch.zeros(100, 3, 8, 8, dtype=torch.uint8))
    >>> report.novel, report.novel + report.replaced + report.rejected, len(memory)
    (5, 100, 5)
    """

    by_number: ClassVar[bool] = True

    def _slots(self, images: torch.Tensor, embed: Embed | None) -> list[int | None]:
        return [self._slot(number) for number in range(self._seen, self._seen + len(images))]

    def _slot(self, number: int) -> int | None:
        if number < self.capacity:
            return number
        drawn = int(self._insertion.integers(number + 1))
        return drawn if drawn < self.capacity else None
