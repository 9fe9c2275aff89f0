"""Exact nearest neighbours among features, by cosine, block by block."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from climb.arguments import check_value
from climb.errors import InputError
from climb.precision import full_float32

ENTRIES_AT_ONCE = 2**24
"""Most entries of a similarity matrix that are computed at a time: 64 MiB of float32."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Neighbours:
    """The nearest rows of a reference set, nearest first, for each query."""

    distances: Tensor
    """float32 (m, k): cosine distances, 0 to 2."""
    indices: Tensor
    """int64 (m, k): rows of the reference set."""


def unit_features(features: Tensor) -> Tensor:
    """Features (n, f) as float32 rows of length 1, after a signed square root.

    The root keeps a few large features from dominating the cosine (Perronnin et al., 2010).

    >>> unit_features(torch.tensor([[9.0, -16.0]]))
    tensor([[ 0.6000, -0.8000]])
    """
    if features.ndim != 2 or features.shape[1] == 0:
        raise InputError(f"features must have the shape (n, f); given {tuple(features.shape)}")
    features = features.float()
    return F.normalize(features.sign() * features.abs().sqrt(), dim=1)


def find_neighbours(queries: Tensor, references: Tensor, k: int, *, themselves: bool = False) -> Neighbours:
    """The ``k`` nearest of ``references`` (n, f) for each of ``queries`` (m, f); rows have length 1.

    Args:
        queries: rows to look up.
        references: rows to find.
        k: number of neighbours, at most n.
        themselves: whether both are the same rows; no row is then its own neighbour.

    >>> rows = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    >>> find_neighbours(rows, rows, 1, themselves=True).indices.flatten().tolist()
    [1, 2, 1]
    """
    check_value("k", k, int, least=1)
    available = len(references) - themselves
    if k > available:
        raise InputError(f"k is {k}; there are {available} images to find")
    rows = max(1, ENTRIES_AT_ONCE // len(references))
    distances, indices = [], []
    for start in range(0, len(queries), rows):
        block = queries[start : start + rows]
        with full_float32():
            cosines = block @ references.T
        if themselves:
            own = torch.arange(len(block), device=block.device)
            cosines[own, own + start] = -torch.inf
        best = cosines.topk(k)
        distances.append((1 - best.values).clamp(min=0))
        indices.append(best.indices)
    if not distances:
        empty = queries.new_zeros((0, k))
        return Neighbours(distances=empty, indices=empty.long())
    return Neighbours(distances=torch.cat(distances), indices=torch.cat(indices))
