"""First in, first out: the memory of the last N images of the stream."""

from __future__ import annotations

from typing import ClassVar

import torch

from climb.memory.contract import Embed
from climb.memory.flat import FlatMemory


class FifoMemory(FlatMemory):
    """Keeps the last ``capacity`` images (the buffer of CLA-E and CLA-R; Cignoni et al., 2025).

    CLA-R also keeps what each image was embedded to, and aligns with it: ``embedding_rate=0.5``. The CLIMB paper
    describes that target as the embedding of the first pass; CLA-R's own is its running average, which is ours too
    (``embedding_rate=0`` is the other reading).

    >>> memory = FifoMemory(2, (3, 8, 8), 16)
    >>> for shade in range(3):
    ...     report = memory.insert(torch.full((1, 3, 8, 8), shade, dtype=torch.uint8))
    >>> report.replaced, sorted(memory.sample(2).ids.tolist())
    (1, [1, 2])
    """

    by_number: ClassVar[bool] = True

    def _slots(self, images: torch.Tensor, embed: Embed | None) -> list[int]:
        return [number % self.capacity for number in range(self._seen, self._seen + len(images))]
