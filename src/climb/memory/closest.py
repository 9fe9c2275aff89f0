"""The most redundant member of each of many small groups, in one matrix product."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F

from climb.precision import full_float32


def later_of_closest(embeddings: torch.Tensor, counts: Sequence[int]) -> list[int]:
    """For each group the position in it of the later one of its two most similar members, by cosine.

    ``embeddings`` (n, d) lists the groups one after another, ``counts`` says how many members each has: at least
    two, and n in all. Groups of different sizes are padded to the largest. One synchronisation.

    >>> later_of_closest(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.1, 2.0], [1.0, 0.0], [0.0, 1.0]]), [3, 2])
    [2, 1]
    """
    device, groups, most = embeddings.device, len(counts), max(counts)
    filled = [group * most + position for group, count in enumerate(counts) for position in range(count)]
    padded = torch.zeros((groups * most, embeddings.shape[1]), device=device)
    padded.index_copy_(0, torch.tensor(filled).to(device), F.normalize(embeddings.float(), dim=1))
    padded = padded.view(groups, most, -1)
    position = torch.arange(most, device=device)
    exists = position < torch.tensor(list(counts)).to(device)[:, None]  # (groups, most)
    pair = (position[:, None] < position) & exists[:, None, :]
    with full_float32():
        cosines = torch.bmm(padded, padded.transpose(1, 2)).masked_fill(~pair, -math.inf)
    later: list[int] = (cosines.flatten(1).argmax(1) % most).tolist()
    return later
