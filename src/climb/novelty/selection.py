"""Choose images to label: typical ones, each for another part of the data, none like an image that has a label."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from climb.arguments import check_value
from climb.errors import InputError
from climb.novelty.neighbours import find_neighbours, unit_features
from climb.precision import full_float32

NEIGHBOURS = 20
"""Neighbours within its cluster that tell how typical an image is."""
ITERATIONS = 20
CLUSTERED = 20_000
"""Most images that the clusters are computed from; the others join them afterwards."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Selected:
    """Images to label, the most useful first."""

    rows: list[int]
    """Their rows among the candidates."""
    cluster_sizes: list[int]
    """Number of candidates that each of them stands for."""


def select_diverse(
    features: Tensor, n: int, *, labelled: Tensor | None = None, apart: float = 0.0, seed: int = 0
) -> Selected:
    """Choose ``n`` images to label by their features.

    All images are divided into one cluster per image that is labelled or to be chosen. The most typical image of a
    cluster has the nearest neighbours within it. The largest clusters without a labelled image give one image each, as
    in TypiClust (Hacohen et al., 2022); if they do not suffice, the largest clusters for their number of labels follow.

    Args:
        features: (m, f) of the candidates.
        n: number of images to choose.
        labelled: (l, f) of images that have a label.
        apart: least cosine distance between two images with a label; nearer ones are near-duplicates.
        seed: of the clusters.

    Raises:
        InputError: fewer than ``n`` candidates are left without near-duplicates.

    >>> centres = torch.eye(3).repeat_interleave(10, dim=0)
    >>> features = centres + 0.05 * torch.rand(30, 3, generator=torch.Generator().manual_seed(0))
    >>> sorted(row // 10 for row in select_diverse(features, 3).rows)
    [0, 1, 2]
    >>> {row // 10 for row in select_diverse(features, 2, labelled=features[:1]).rows}
    {1, 2}
    """
    check_value("n", n, int, least=1)
    if n > len(features):
        raise InputError(f"n is {n}; there are {len(features)} images to select from")
    units = unit_features(features)
    known = unit_features(labelled) if labelled is not None and len(labelled) else units[:0]
    everything = torch.cat([units, known])
    cluster = _clusters(everything, min(n + len(known), len(everything)), torch.Generator().manual_seed(seed))
    members: dict[int, list[int]] = {}
    for row, number in enumerate(cluster[: len(units)].tolist()):
        members.setdefault(number, []).append(row)
    labels = torch.bincount(cluster[len(units) :], minlength=int(cluster.max()) + 1).tolist()
    sizes = {number: len(rows) for number, rows in members.items()}
    waiting = {number: _typical_first(units, rows) for number, rows in members.items()}
    taken, chosen, stands_for = known, list[int](), list[int]()
    while len(chosen) < n:
        if not waiting:
            left = f"only {len(chosen)} of {len(features)} images are not near-duplicates of others"
            raise InputError(f"{left}; give --n {len(chosen)} or less")
        number = min(waiting, key=lambda each: (labels[each] / sizes[each] if labels[each] else 0, -sizes[each], each))
        while waiting[number]:
            row = waiting[number].pop(0)
            # Equal features have a distance that rounding may make positive.
            if apart == 0 or not bool(((1 - taken @ units[row]) < apart).any()):
                chosen.append(row)
                stands_for.append(sizes[number])
                labels[number] += 1
                taken = torch.cat([taken, units[row : row + 1]])
                break
        if not waiting[number]:
            del waiting[number]
    return Selected(rows=chosen, cluster_sizes=stands_for)


def _typical_first(units: Tensor, rows: list[int]) -> list[int]:
    """Rows of a cluster in order of their mean distance to their neighbours in it."""
    if len(rows) < 3:
        return rows
    own = units[rows]
    distances = find_neighbours(own, own, min(NEIGHBOURS, len(rows) - 1), themselves=True).distances.mean(dim=1)
    return [rows[place] for place in distances.argsort(stable=True).tolist()]


def _clusters(units: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """The cluster (n,) of each row, by k-means on the sphere that begins with far-apart rows."""
    sample = units
    if len(units) > CLUSTERED:
        sample = units[torch.randperm(len(units), generator=generator)[: max(CLUSTERED, count)]]
    with full_float32():
        centres = sample[_spread_rows(sample, count, generator)]
        nearest = _nearest(sample, centres)
        for _ in range(ITERATIONS):
            sums = torch.zeros_like(centres).index_add_(0, nearest, sample)
            moved = torch.where(sums.norm(dim=1, keepdim=True) > 0, F.normalize(sums, dim=1), centres)
            before, nearest = nearest, _nearest(sample, moved)
            centres = moved
            if torch.equal(before, nearest):
                break
        return _nearest(units, centres)


def _spread_rows(units: Tensor, count: int, generator: torch.Generator) -> list[int]:
    """Rows to begin with (k-means++): each is drawn in proportion to its distance to those before."""
    rows = [int(torch.randint(len(units), (1,), generator=generator))]
    distances = (1 - units @ units[rows[0]]).clamp(min=0)
    for _ in range(count - 1):
        weights = distances if bool((distances > 0).any()) else torch.ones_like(distances)
        rows.append(int(torch.multinomial(weights, 1, generator=generator)))
        distances = torch.minimum(distances, (1 - units @ units[rows[-1]]).clamp(min=0))
    return rows


def _nearest(units: Tensor, centres: Tensor) -> Tensor:
    return find_neighbours(units, centres, 1).indices[:, 0]
