"""Collapse of embeddings or features: two numbers that need no label."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F

from climb.errors import ClimbError
from climb.precision import widest

COLLAPSED = 0.1  # spread below which embeddings count as one point
ONE_DIRECTION = 1.5  # effective rank below which they count as one line
FEWEST = 8  # embeddings needed for the two numbers to mean anything
ALL_THE_SAME = 1e-3  # spread of images below which they count as equal


@dataclass(frozen=True, kw_only=True)
class Health:
    """Spread of the embeddings of a batch."""

    spread: float
    """Standard deviation per dimension of unit embeddings, times sqrt(d): 1 for random directions, 0 for one point."""
    effective_rank: float
    """exp of the entropy of the singular values: the number of dimensions in use (Roy and Vetterli, 2007)."""

    @property
    def collapsed(self) -> bool:
        """Whether the embeddings are almost one point or one line."""
        # A final batch norm scales up what is left of a collapse, noise included; then only the rank shows it.
        return self.spread < COLLAPSED or self.effective_rank < ONE_DIRECTION


def health(embeddings: torch.Tensor) -> Health:
    """The health of embeddings (n, d). Waits for the device.

    >>> health(torch.eye(4)).effective_rank, health(torch.ones(5, 4)).collapsed
    (3.0, True)
    """
    centred = _centred(embeddings)
    # Squared singular values are the eigenvalues of the smaller Gram matrix. The host decomposes such a small matrix
    # much faster than a GPU.
    gram = centred @ centred.T if len(centred) <= centred.shape[1] else centred.T @ centred
    matrix = gram.cpu().numpy()
    if not np.isfinite(matrix).all():
        raise ClimbError("the network's embeddings are not finite: training diverged; lower the learning rate")
    spread = math.sqrt(np.trace(matrix) / len(centred))
    values = np.sqrt(np.linalg.eigvalsh(matrix).clip(min=0.0))
    share = values / max(values.sum(), 1e-12)
    entropy = -(share * np.log(share.clip(min=1e-12))).sum()
    return Health(spread=spread, effective_rank=round(math.exp(entropy), 4))


def feature_health(features: torch.Tensor, images: torch.Tensor) -> Health | None:
    """The health of features (n, f), with the spread relative to that of images (m, 3, H, W), all or some of them.

    Similar images, such as those of a fixed camera, have similar features in a healthy network, too. None for fewer
    than eight features and for equal images.

    >>> images = torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> feature_health(images.flatten(1), images).spread, feature_health(images[:7].flatten(1), images)
    (1.0, None)
    """
    apart = float(_centred(images.flatten(1)).square().sum(dim=1).mean().sqrt())
    if len(features) < FEWEST or apart < ALL_THE_SAME:
        return None
    state = health(features)
    return replace(state, spread=round(state.spread / apart, 4))


def feature_numbers(state: Health | None) -> dict[str, float]:
    """The health of features by their names in the journal; empty for None."""
    return {} if state is None else {"feature_spread": state.spread, "feature_rank": state.effective_rank}


def _centred(vectors: torch.Tensor) -> torch.Tensor:
    """Unit vectors minus their mean."""
    unit = F.normalize(vectors.to(widest(vectors.device)), dim=1)
    return unit - unit.mean(dim=0)
