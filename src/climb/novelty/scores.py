"""How new an image is: its distance to stored images, calibrated by their distances to each other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from climb.errors import ClimbError, InputError
from climb.novelty.neighbours import find_neighbours, unit_features

NEIGHBOURS = 3
"""Stored images whose mean distance is the distance to the memory. One alone may be an outlier itself."""
FEWEST = 10
"""Fewest stored images to compare with."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """The novelty of some images."""

    scores: Tensor
    """float64 (n,) in 0..1: share of stored images that lie closer to the other stored ones."""
    distances: Tensor
    """float32 (n,): mean cosine distance to the nearest stored images."""
    nearest: Tensor
    """int64 (n,): row of the nearest stored image."""


class ReferenceSet:
    """Stored images that others are compared with, by their features.

    The score of an image is the share of stored images that lie closer to the other stored ones than the image does. It
    needs no labels: among images like the stored ones, about one in a hundred scores above 0.99. Scores are
    interpolated between neighbouring distances, so that farther images always have a higher score.

    Args:
        features: (n, f) of the stored images.

    >>> features = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)) + 4
    >>> reference = ReferenceSet(features)
    >>> scored = reference.score(torch.stack([features[7], -features[7]]))
    >>> scored.nearest[0].item(), [round(score, 2) for score in scored.scores.tolist()]
    (7, [0.82, 1.0])
    """

    def __init__(self, features: Tensor) -> None:
        if len(features) < FEWEST:
            raise InputError(f"{len(features)} images are stored; novelty needs at least {FEWEST} to compare with")
        self._set(unit_features(features))

    def _set(self, units: Tensor) -> None:
        if not bool(torch.isfinite(units).all()):
            raise ClimbError("features of stored images are not finite: the encoder has diverged")
        self.units = units
        """float32 (n, f): the features as `unit_features`."""
        own = find_neighbours(units, units, NEIGHBOURS, themselves=True).distances.mean(dim=1)
        self.distances: Tensor = own.sort().values
        """float32 (n,): distance of each stored image to the others, ascending."""

    def __len__(self) -> int:
        return len(self.units)

    def score(self, features: Tensor) -> Scores:
        """The novelty of images with these features (m, f)."""
        if features.ndim != 2 or features.shape[1] != self.units.shape[1]:
            sizes = f"{self.units.shape[1]} numbers each, those given have the shape {tuple(features.shape)}"
            raise InputError(f"the features of stored images have {sizes}: embed the images with the same model")
        found = find_neighbours(unit_features(features).to(self.units.device), self.units, NEIGHBOURS)
        distances = found.distances.mean(dim=1)
        return Scores(scores=calibrated(distances, self.distances), distances=distances, nearest=found.indices[:, 0])


def calibrated(distances: Tensor, own: Tensor) -> Tensor:
    """The scores (n,) of distances (n,) to stored images, float64 in 0..1, strictly increasing.

    Args:
        distances: of the images to score.
        own: of each stored image to the others, ascending.

    >>> calibrated(torch.tensor([0.0, 0.15, 4.0]), torch.tensor([0.1, 0.2, 0.3, 0.4])).round(decimals=4).tolist()
    [0.0, 0.3, 0.98]
    """
    known, given = own.double(), distances.double()
    rank = torch.searchsorted(known, given)
    # Between two stored distances linear; beyond the last, it approaches 1 without reaching it.
    low = torch.cat([known.new_zeros(1), known])[rank]
    high = torch.cat([known, known.new_full((1,), torch.inf)])[rank]
    inside = (given - low) / (high - low).clamp(min=1e-12)
    beyond = 1 - low / given.clamp(min=1e-12)
    return (rank + torch.where(rank == len(known), beyond, inside).clamp(0, 1)) / (len(known) + 1)
