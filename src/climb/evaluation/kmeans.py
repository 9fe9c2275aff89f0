"""k-means, several samples at a time, on any device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from climb.errors import InputError

MOST_ITERATIONS = 300


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """r clusterings of m points each."""

    centres: Tensor
    """(r, k, d): the mean of each cluster."""
    labels: Tensor
    """int64 (r, m): the cluster of each point."""
    sizes: Tensor
    """(r, k): points in each cluster; 0 where duplicates left one empty."""


def k_means(points: Tensor, k: int, *, generator: torch.Generator) -> Clusters:
    """Lloyd's algorithm from k-means++ starts, until nothing moves, on each of r samples ``points`` (r, m, d).

    ``generator`` lives on the CPU whatever the device, so that all devices start from the same points.

    >>> line = torch.tensor([[[0.0], [0.1], [5.0], [5.2]]])
    >>> k_means(line, 2, generator=torch.Generator().manual_seed(0)).centres.flatten().sort().values
    tensor([0.0500, 5.1000])
    """
    if points.ndim != 3 or not 1 <= k <= points.shape[1]:
        raise InputError(f"k-means needs points (r, m, d) and 1 <= k <= m; given {tuple(points.shape)} and k = {k}")
    return refine(points, spread_start(points, k, generator=generator))


def spread_start(points: Tensor, k: int, *, generator: torch.Generator) -> Tensor:
    """k-means++: points (r, k, d), each drawn with probability proportional to its squared distance to the nearest
    one drawn before (Arthur and Vassilvitskii, 2007)."""
    samples, count, _ = points.shape
    # The largest of weight / exponential noise is a draw by weight, and needs no cumulative sum, which is not
    # deterministic on a GPU.
    noise = torch.empty(k, samples, count).exponential_(generator=generator).to(points)
    every = torch.arange(samples, device=points.device)
    lengths = points.square().sum(2)
    weights = torch.ones_like(noise[0])
    nearest = torch.full_like(weights, torch.inf)
    drawn = []
    for step in noise:
        choice = points[every, (weights / step).argmax(1)]
        drawn.append(choice)
        gaps = lengths - 2 * (points @ choice.unsqueeze(2)).squeeze(2) + choice.square().sum(1, keepdim=True)
        nearest = torch.minimum(nearest, gaps.clamp(min=0))
        weights = nearest + torch.finfo(points.dtype).tiny  # only duplicates left: any of them
    return torch.stack(drawn, dim=1)


def refine(points: Tensor, centres: Tensor) -> Clusters:
    """Lloyd's algorithm from the given centres (r, k, d); an empty cluster's centre stays where it is."""
    numbers = torch.arange(centres.shape[1], device=points.device)
    labels = torch.full(points.shape[:2], -1, device=points.device)
    for _ in range(MOST_ITERATIONS):
        # |p|^2 is the same for all centres.
        gaps = centres.square().sum(2).unsqueeze(1) - 2 * points @ centres.transpose(1, 2)
        found = gaps.argmin(2)
        members = (found.unsqueeze(2) == numbers).to(points)
        sizes = members.sum(1)
        if bool((found == labels).all()):
            break
        labels = found
        # A product with the memberships, not a scatter: the same bits every time, on a GPU too.
        means = members.transpose(1, 2) @ points / sizes.clamp(min=1).unsqueeze(2)
        centres = torch.where(sizes.unsqueeze(2) > 0, means, centres)
    return Clusters(centres=centres, labels=labels, sizes=sizes)
