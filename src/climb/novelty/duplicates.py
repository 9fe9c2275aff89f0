"""Near-identical images: candidates by features, confirmed by their pixels, joined to groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from climb.novelty.neighbours import find_neighbours
from climb.novelty.thumbnails import correlations

CANDIDATES = 5
"""Nearest images, by features, that are looked at for each image."""
CAUGHT = 0.99
"""Share of small changes that the distance of features must let pass."""
LEAST_CORRELATION, PER_DISTANCE = 0.845, 1.0
"""Two images are duplicates if the correlation of their pixels is at least the first number plus the second one times
the distance of their features. Measured in results/memory-at-work."""
PAIRS_AT_ONCE = 2048

Search = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""``search(queries, references, k)`` returns cosine distances and rows, (m, k) each, nearest first."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two near-identical images."""

    first: int
    second: int
    distance: float
    """Cosine distance of their features."""
    correlation: float
    """Correlation of their pixels, aligned."""


def small_change_threshold(originals: Tensor, changed: Tensor) -> float:
    """The distance of features that 99 % of small changes stay below.

    Args:
        originals: unit features (n, f) of some images.
        changed: unit features (c, n, f) of the same images after each of c small changes.

    >>> small_change_threshold(torch.eye(2), torch.eye(2).expand(3, 2, 2))
    0.0
    """
    distances = (1 - (changed * originals).sum(dim=2)).clamp(min=0).flatten()
    return float(distances.quantile(CAUGHT))


def exact_search(queries: Tensor, references: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` nearest rows of ``references`` for each query; a query that is among them finds itself first."""
    found = find_neighbours(queries, references, k)
    return found.distances, found.indices


def close_pairs(
    units: Tensor,
    thumbs: Tensor,
    threshold: float,
    *,
    others: tuple[Tensor, Tensor] | None = None,
    search: Search = exact_search,
) -> list[Pair]:
    """Pairs of near-identical images within one set, or across two sets.

    Args:
        units: unit features (n, f).
        thumbs: their thumbnails, uint8 (n, 64, 64).
        threshold: largest distance of features, from `small_change_threshold`.
        others: unit features and thumbnails of a second set; ``second`` of each pair is a row of it.
        search: finds the candidates.
    """
    references, reference_thumbs = others if others is not None else (units, thumbs)
    count = min(len(references), CANDIDATES + (others is None))
    distances, rows = search(units, references, count)
    first = torch.arange(len(units)).repeat_interleave(count)
    second, distance = rows.flatten(), distances.flatten()
    near = distance <= threshold
    if others is None:
        near &= first != second
        low, high = torch.minimum(first, second), torch.maximum(first, second)
    else:
        low, high = first, second
    key, position = torch.unique(low[near] * len(references) + high[near], return_inverse=True)
    distance = torch.zeros(len(key)).index_put_((position,), distance[near].float())
    pairs = []
    for start in range(0, len(key), PAIRS_AT_ONCE):
        block = key[start : start + PAIRS_AT_ONCE]
        one, other = block // len(references), block % len(references)
        alike = correlations(thumbs[one], reference_thumbs[other])
        enough = alike >= LEAST_CORRELATION + PER_DISTANCE * distance[start : start + PAIRS_AT_ONCE]
        for place in enough.nonzero().flatten().tolist():
            pairs.append(
                Pair(
                    first=int(one[place]),
                    second=int(other[place]),
                    distance=float(distance[start + place]),
                    correlation=float(alike[place]),
                )
            )
    return pairs


def duplicate_groups(pairs: list[Pair], count: int) -> list[list[int]]:
    """Groups of rows 0 to ``count`` - 1 that pairs connect, each ascending, the largest first.

    >>> def pair(first, second):
    ...     return Pair(first=first, second=second, distance=0.0, correlation=1.0)
    >>> duplicate_groups([pair(0, 1), pair(3, 4), pair(4, 5)], 7)
    [[3, 4, 5], [0, 1]]
    """
    parent = list(range(count))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    for pair in pairs:
        one, other = sorted((root(pair.first), root(pair.second)))
        parent[other] = one
    groups: dict[int, list[int]] = {}
    for row in range(count):
        groups.setdefault(root(row), []).append(row)
    return sorted((rows for rows in groups.values() if len(rows) > 1), key=lambda rows: (-len(rows), rows))
