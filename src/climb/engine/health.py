"""Are the embeddings still alive? Two numbers that need no label."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

COLLAPSED = 0.1  # spread below which embeddings are as good as one point


@dataclass(frozen=True, kw_only=True)
class Health:
    """How far the embeddings of a batch are spread out."""

    spread: float
    """Standard deviation per dimension of unit embeddings, times sqrt(d): 1 for random directions, 0 for one point."""
    effective_rank: float
    """exp of the entropy of the singular values: how many dimensions are really used (Roy and Vetterli, 2007)."""

    @property
    def collapsed(self) -> bool:
        """Whether nothing can be told apart any more."""
        return self.spread < COLLAPSED


def health(embeddings: torch.Tensor) -> Health:
    """The health of embeddings (n, d). Waits for the device.

    >>> health(torch.eye(4)).effective_rank, health(torch.ones(5, 4)).collapsed
    (3.0, True)
    """
    unit = F.normalize(embeddings.float(), dim=1)
    spread = unit.std(dim=0, unbiased=False).square().mean().sqrt() * embeddings.shape[1] ** 0.5
    values = torch.linalg.svdvals(unit - unit.mean(dim=0))
    share = values / values.sum().clamp(min=1e-12)
    entropy = -(share * share.clamp(min=1e-12).log()).sum()
    return Health(spread=float(spread), effective_rank=round(float(entropy.exp()), 4))
