"""Diversity of stored images: the measures of the paper's appendix on memory diversity, and k-means.

All measures use cosines of embeddings. The paper defines the Vendi score and the uniformity. For the cluster measures
it gives k-means with as many clusters as classes, on 2121 of 2500 embeddings, ten times, but no distance. Its printed
ratio times its printed intra distance is 1.00 for all four memories. Cosine distances between well-spread centres give
this value, so we use cosine distances: of images to the mean of their cluster, and between these means.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from climb.errors import InputError
from climb.precision import widest
from climb.seeds import torch_generator

SUBSAMPLE = 2121 / 2500
"""Share of the capacity in each subsample. Cluster measures depend on the number of points."""
DRAWS = 10
"""Number of subsamples, if the memory is larger than one."""
TEMPERATURE = 2.0
"""t of the uniformity."""
ROWS_AT_ONCE = 2048
"""Rows of the matrix of all pairs that are computed at a time."""


@dataclass(frozen=True, kw_only=True)
class Diversity:
    """Diversity measures of a memory. None: too few images."""

    images: int
    vendi_score: float
    """Effective number of different images, from 1 to ``images``."""
    uniformity: float | None
    """Log of the mean Gaussian potential of all pairs; lower is more uniform."""
    intra_distance: float | None
    """Mean cosine distance of an image to the mean of its cluster."""
    intra_distance_std: float | None
    """Standard deviation over subsamples; None if all images were used at once."""
    inter_intra_ratio: float | None
    """Mean cosine distance between the means of clusters, divided by ``intra_distance``."""
    inter_intra_ratio_std: float | None
    clusters: int
    subsample: int
    """Images in each subsample."""


def measure_diversity(embeddings: Tensor, *, clusters: int, subsample: int, seed: int) -> Diversity:
    """Compute all measures of embeddings (n, d), on their device.

    Args:
        embeddings: one non-zero row per stored image.
        clusters: k of k-means, the number of classes; at most the number of images.
        subsample: images per clustering. With more images, `DRAWS` random subsamples of this size are clustered.
        seed: seed of the subsamples and of k-means.

    >>> diversity = measure_diversity(torch.eye(4), clusters=2, subsample=4, seed=0)
    >>> round(diversity.vendi_score, 3), diversity.uniformity
    (4.0, -4.0)
    """
    units = unit_rows(embeddings)
    count = len(units)
    if subsample < 2 or clusters < 2:
        raise InputError(f"subsample is {subsample} and clusters is {clusters}; both must be at least 2")
    size = min(count, subsample)
    k = min(clusters, size)
    generator = torch_generator(seed, "diversity")
    draws = [torch.randperm(count, generator=generator)[:size] for _ in range(DRAWS if count > size else 1)]
    points = units[torch.stack(draws).to(units.device)].float()
    intra, ratio = cluster_distances(points, k, generator=generator) if k > 1 else ([], [])
    return Diversity(
        images=count,
        vendi_score=vendi_score(units),
        uniformity=uniformity(units) if count > 1 else None,
        intra_distance=statistics.fmean(intra) if intra else None,
        intra_distance_std=statistics.stdev(intra) if len(intra) > 1 else None,
        inter_intra_ratio=statistics.fmean(ratio) if ratio else None,
        inter_intra_ratio_std=statistics.stdev(ratio) if len(ratio) > 1 else None,
        clusters=k,
        subsample=size,
    )


def unit_rows(embeddings: Tensor) -> Tensor:
    """Rows (n, d) scaled to unit length, in float64 if the device supports it."""
    if embeddings.ndim != 2 or len(embeddings) == 0:
        raise InputError(f"embeddings must be (n, d) with n at least 1, not {tuple(embeddings.shape)}")
    exact = embeddings.detach().to(widest(embeddings.device))
    return torch.nn.functional.normalize(exact, dim=1)


def vendi_score(units: Tensor) -> float:
    """exp of the entropy of the eigenvalues of K / n, K the cosines of all pairs (Friedman and Dieng, 2023).

    >>> round(vendi_score(torch.eye(3)), 4), round(vendi_score(torch.ones(5, 1)), 4)
    (3.0, 1.0)
    """
    count, width = units.shape
    # U U^T and U^T U have the same eigenvalues above zero, so use the smaller matrix.
    kernel = units @ units.T if count <= width else units.T @ units
    values = torch.linalg.eigvalsh(kernel.cpu() / count)
    values = values[values > 0]
    return float(torch.exp(-(values * values.log()).sum()))


def uniformity(units: Tensor) -> float:
    """log of the mean over pairs of different rows of exp(-t |u - v|^2), t = 2 (Wang and Isola, 2020)."""
    count = len(units)
    total = 0.0
    for start in range(0, count, ROWS_AT_ONCE):
        rows = units[start : start + ROWS_AT_ONCE]
        potential = torch.exp(-TEMPERATURE * (2 - 2 * rows @ units.T))
        potential.diagonal(start).zero_()  # a row is not paired with itself
        total += float(potential.sum())
    return math.log(total / (count * (count - 1)))


def cluster_distances(points: Tensor, k: int, *, generator: torch.Generator) -> tuple[list[float], list[float]]:
    """The intra distances and inter/intra ratios of r samples of unit rows (r, m, d); see `Diversity`.

    Samples without a ratio are left out: each image is its own cluster, or all images are equal.
    """
    clusters = k_means(points, k, generator=generator)
    means = torch.nn.functional.normalize(clusters.centres, dim=2)
    own = means.gather(1, clusters.labels.unsqueeze(2).expand(-1, -1, means.shape[2]))
    intra = 1 - (points * own).sum(2).mean(1)
    filled = (clusters.sizes > 0).to(points)
    pairs = filled.unsqueeze(2) * filled.unsqueeze(1)
    pairs.diagonal(dim1=1, dim2=2).zero_()
    inter = ((1 - means @ means.transpose(1, 2)) * pairs).sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1)
    kept = intra > 1e-6  # a distance of zero is smaller than this after rounding
    return intra[kept].tolist(), (inter[kept] / intra[kept]).tolist()


MOST_ITERATIONS = 300


@dataclass(frozen=True, kw_only=True)
class Clusters:
    """r clusterings of m points each."""

    centres: Tensor
    """(r, k, d): the mean of each cluster."""
    labels: Tensor
    """int64 (r, m): the cluster of each point."""
    sizes: Tensor
    """(r, k): points in each cluster; 0 if duplicates left it empty."""


def k_means(points: Tensor, k: int, *, generator: torch.Generator) -> Clusters:
    """Lloyd's algorithm from k-means++ starts until convergence, on each of r samples ``points`` (r, m, d).

    ``generator`` is a CPU generator, so that all devices start from the same points.

    >>> line = torch.tensor([[[0.0], [0.1], [5.0], [5.2]]])
    >>> k_means(line, 2, generator=torch.Generator().manual_seed(0)).centres.flatten().sort().values
    tensor([0.0500, 5.1000])
    """
    if points.ndim != 3 or not 1 <= k <= points.shape[1]:
        raise InputError(f"k-means needs points (r, m, d) and 1 <= k <= m, not {tuple(points.shape)} and k = {k}")
    return refine(points, spread_start(points, k, generator=generator))


def spread_start(points: Tensor, k: int, *, generator: torch.Generator) -> Tensor:
    """k-means++ (Arthur and Vassilvitskii, 2007): draw points (r, k, d) as start of the centres.

    The probability of a point is proportional to its squared distance to the nearest point drawn before.
    """
    samples, count, _ = points.shape
    # The maximum of weight / exponential noise is a draw proportional to weight. A cumulative sum is not deterministic
    # on a GPU.
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
        weights = nearest + torch.finfo(points.dtype).tiny  # if only duplicates are left, draw any of them
    return torch.stack(drawn, dim=1)


def refine(points: Tensor, centres: Tensor) -> Clusters:
    """Lloyd's algorithm from the given centres (r, k, d). The centre of an empty cluster does not move."""
    numbers = torch.arange(centres.shape[1], device=points.device)
    labels = torch.full(points.shape[:2], -1, device=points.device)
    for _ in range(MOST_ITERATIONS):
        # |p|^2 is the same for all centres.
        gaps = centres.square().sum(2).unsqueeze(1) - 2 * points @ centres.transpose(1, 2)
        nearest = gaps.argmin(2)
        members = (nearest.unsqueeze(2) == numbers).to(points)
        sizes = members.sum(1)
        if bool((nearest == labels).all()):
            break
        labels = nearest
        # A matrix product, not a scatter: deterministic on a GPU.
        means = members.transpose(1, 2) @ points / sizes.clamp(min=1).unsqueeze(2)
        centres = torch.where(sizes.unsqueeze(2) > 0, means, centres)
    return Clusters(centres=centres, labels=labels, sizes=sizes)
