"""First in, first out: the memory of the last N images of the stream."""

from __future__ import annotations

from climb.memory.flat import FlatMemory


class FifoMemory(FlatMemory):
    """Keeps the last ``capacity`` images (the buffer of CLA-E and CLA-R).

    >>> import torch
    >>> memory = FifoMemory(2, (3, 8, 8), 16)
    >>> for shade in range(3):
    ...     report = memory.insert(torch.full((1, 3, 8, 8), shade, dtype=torch.uint8))
    >>> report.replaced, sorted(memory.sample(2).ids.tolist())
    (1, [1, 2])
    """

    def _place(self, number: int) -> int:
        return number % self.capacity
