"""Are embeddings, or features, still alive? Two numbers that need no label."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from climb.precision import widest

COLLAPSED = 0.1  # spread below which embeddings are as good as one point
ONE_DIRECTION = 1.5  # effective rank below which they are as good as on one line
FEWEST = 8  # embeddings below which the two numbers say little


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
    unit = F.normalize(embeddings.to(widest(embeddings.device)), dim=1)
    centred = unit - unit.mean(dim=0)
    # Squared singular values are the eigenvalues of the smaller Gram matrix: a few numbers, which the host decomposes
    # much faster than a GPU does.
    gram = centred @ centred.T if len(centred) <= centred.shape[1] else centred.T @ centred
    matrix = gram.cpu().numpy()
    spread = math.sqrt(np.trace(matrix) / len(centred))
    values = np.sqrt(np.linalg.eigvalsh(matrix).clip(min=0.0))
    share = values / max(values.sum(), 1e-12)
    entropy = -(share * np.log(share.clip(min=1e-12))).sum()
    return Health(spread=spread, effective_rank=round(math.exp(entropy), 4))
