"""Are embeddings, or features, still alive? Two numbers that need no label."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F

from climb.errors import ClimbError
from climb.precision import widest

COLLAPSED = 0.1  # spread below which embeddings are as good as one point
ONE_DIRECTION = 1.5  # effective rank below which they are as good as on one line
FEWEST = 8  # embeddings below which the two numbers say little
ALL_THE_SAME = 1e-3  # spread of images below which there is nothing to tell apart


@dataclass(frozen=True, kw_only=True)
class Health:
    """How far the embeddings of a batch are spread out."""

    spread: float
    """Standard deviation per dimension of unit embeddings, times sqrt(d): 1 for random directions, 0 for one point."""
    effective_rank: float
    """exp of the entropy of the singular values: how many dimensions are really used (Roy and Vetterli, 2007)."""

    @property
    def collapsed(self) -> bool:
        """Whether hardly anything can be told apart any more.

        A batch norm at the end scales what is left of a collapse up again, noise included: then only the rank shows it.
        """
        return self.spread < COLLAPSED or self.effective_rank < ONE_DIRECTION


def health(embeddings: torch.Tensor) -> Health:
    """The health of embeddings (n, d). Waits for the device.

    >>> health(torch.eye(4)).effective_rank, health(torch.ones(5, 4)).collapsed
    (3.0, True)
    """
    centred = _centred(embeddings)
    # Squared singular values are the eigenvalues of the smaller Gram matrix: a few numbers, which the host decomposes
    # much faster than a GPU does.
    gram = centred @ centred.T if len(centred) <= centred.shape[1] else centred.T @ centred
    matrix = gram.cpu().numpy()
    if not np.isfinite(matrix).all():
        raise ClimbError("the network's embeddings are not finite any more: training diverged; lower the learning rate")
    spread = math.sqrt(np.trace(matrix) / len(centred))
    values = np.sqrt(np.linalg.eigvalsh(matrix).clip(min=0.0))
    share = values / max(values.sum(), 1e-12)
    entropy = -(share * np.log(share.clip(min=1e-12))).sum()
    return Health(spread=spread, effective_rank=round(math.exp(entropy), 4))


def feature_health(features: torch.Tensor, images: torch.Tensor) -> Health | None:
    """The health of features (n, f) of images, its spread relative to that of the images (m, 3, H, W), or of some.

    Images that are alike, as those of a camera that stands still, have features that are alike in a network that is
    well, too. None where there are too few, or images that are all the same: they say nothing of the network.

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
    """As a journal has them, beside those of embeddings; none where nothing can be said."""
    return {} if state is None else {"feature_spread": state.spread, "feature_rank": state.effective_rank}


def _centred(vectors: torch.Tensor) -> torch.Tensor:
    """Of length 1, less their mean."""
    unit = F.normalize(vectors.to(widest(vectors.device)), dim=1)
    return unit - unit.mean(dim=0)
