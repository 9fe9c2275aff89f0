"""How varied and how well ordered are the stored images? The measures of the paper's appendix on memory diversity.

All look at embeddings through their cosine. The paper names the Vendi score and the uniformity exactly; of the clusters
it says k-means with as many clusters as classes, on 2121 of 2500 embeddings, ten times. Its printed ratio times its
printed intra distance is 1.00 for all four memories, which is what the cosine distance between well-spread centres
gives, so cosine distances are used here: of images to the mean of their cluster, and between those means.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from climb.errors import InputError
from climb.evaluation.kmeans import k_means
from climb.precision import widest
from climb.seeds import torch_generator

SUBSAMPLE = 2121 / 2500
"""Share of the capacity that the cluster measures look at: they depend on how many points there are."""
DRAWS = 10
"""Subsamples of a memory that holds more."""
TEMPERATURE = 2.0
"""t of the uniformity."""
ROWS_AT_ONCE = 2048
"""Rows of the matrix of all pairs held at a time."""


@dataclass(frozen=True, kw_only=True)
class Diversity:
    """What a memory holds, in numbers. None where there are too few images to say."""

    images: int
    vendi_score: float
    """Effective number of different images, 1 to ``images``."""
    uniformity: float | None
    """Log of the mean Gaussian potential of all pairs; lower is more even."""
    intra_distance: float | None
    """Mean cosine distance of an image to the mean of its cluster."""
    intra_distance_std: float | None
    """Over the subsamples; None if all images were taken once."""
    inter_intra_ratio: float | None
    """Mean cosine distance between the clusters' means, over ``intra_distance``."""
    inter_intra_ratio_std: float | None
    clusters: int
    subsample: int
    """Images that the cluster measures look at, each time."""


def measure_diversity(embeddings: Tensor, *, clusters: int, subsample: int, seed: int) -> Diversity:
    """Every measure of embeddings (n, d), on their device.

    Args:
        embeddings: one row per stored image, of any length but zero.
        clusters: k of k-means, the number of classes; fewer where there are fewer images.
        subsample: images clustered; a memory with more has `DRAWS` random subsamples of this size clustered.
        seed: of the subsamples and of k-means.

    >>> corners = torch.eye(4)
    >>> found = measure_diversity(corners, clusters=2, subsample=4, seed=0)
    >>> round(found.vendi_score, 3), found.uniformity
    (4.0, -4.0)
    """
    units = unit_rows(embeddings)
    count = len(units)
    if subsample < 2 or clusters < 2:
        raise InputError(f"subsample and clusters must be at least 2; given {subsample} and {clusters}")
    size = min(count, subsample)
    k = min(clusters, size)
    intra: list[float] = []
    ratio: list[float] = []
    if k >= 2:
        generator = torch_generator(seed, "diversity")
        draws = [torch.randperm(count, generator=generator)[:size] for _ in range(DRAWS if count > size else 1)]
        rows = torch.stack(draws).to(units.device)
        intra, ratio = cluster_distances(units[rows].float(), k, generator=generator)
    return Diversity(
        images=count,
        vendi_score=vendi_score(units),
        uniformity=uniformity(units) if count > 1 else None,
        intra_distance=_mean(intra),
        intra_distance_std=_std(intra),
        inter_intra_ratio=_mean(ratio),
        inter_intra_ratio_std=_std(ratio),
        clusters=k,
        subsample=size,
    )


def unit_rows(embeddings: Tensor) -> Tensor:
    """Rows (n, d) scaled to length one, in double precision where the device has it."""
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
    # U U^T and U^T U share their eigenvalues above zero: the smaller one is enough.
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
        potential.diagonal(start).zero_()  # a row and itself are no pair
        total += float(potential.sum())
    return math.log(total / (count * (count - 1)))


def cluster_distances(points: Tensor, k: int, *, generator: torch.Generator) -> tuple[list[float], list[float]]:
    """For each of r samples of unit rows (r, m, d): the intra distance, and inter over intra; see `Diversity`.

    Empty where no ratio exists: every image a cluster of its own, or a single place.
    """
    found = k_means(points, k, generator=generator)
    means = torch.nn.functional.normalize(found.centres, dim=2)
    own = means.gather(1, found.labels.unsqueeze(2).expand(-1, -1, means.shape[2]))
    intra = 1 - (points * own).sum(2).mean(1)
    held = (found.sizes > 0).to(points)
    pairs = held.unsqueeze(2) * held.unsqueeze(1)
    pairs.diagonal(dim1=1, dim2=2).zero_()
    inter = ((1 - means @ means.transpose(1, 2)) * pairs).sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1)
    kept = intra > 1e-6  # rounding leaves less than this of a distance of zero
    return intra[kept].tolist(), (inter[kept] / intra[kept]).tolist()


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _std(values: list[float]) -> float | None:
    return float(torch.tensor(values, dtype=torch.float64).std()) if len(values) > 1 else None
