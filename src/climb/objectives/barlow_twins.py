"""Barlow Twins: correlated views, decorrelated dimensions (Zbontar et al., 2021)."""

from __future__ import annotations

import torch

from climb.nets import Encoded
from climb.objectives.contract import Objective

EPSILON = 1e-5
"""Added to a variance before its root, as in batch norms: the variance of a constant dimension is 0."""


class BarlowTwins(Objective):
    """The cross-correlation matrix of the embeddings of both views approaches the identity.

    Y1 and Y2 are the embeddings of the views, standardised per dimension over the batch (biased variance, as in a
    batch norm). With C = Y1^T Y2 / n, of shape (d, d)::

        L = scale * [ sum over i of (C_ii - 1)^2  +  off_diagonal * sum over i != j of C_ij^2 ]

    The diagonal makes the views agree. The other terms make the dimensions differ, which excludes constant embeddings.
    The loss standardises, so the projector ends without a batch norm.

    Where sources disagree: the paper has no ``scale``, that is 1. The sum grows with d, so implementations scale it
    for their optimiser; 0.1 is common. ``off_diagonal`` is the paper's.

    >>> z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])  # two uncorrelated dimensions
    >>> round(BarlowTwins().loss(z, z).item(), 4), round(BarlowTwins().loss(z, z.flip(1)).item(), 4)
    (0.0, 0.201)
    """

    settings = ()
    final_norm = False

    def __init__(self, off_diagonal: float = 0.005, scale: float = 0.1) -> None:
        super().__init__()
        self.off_diagonal = off_diagonal
        self.scale = scale

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch. Stream and replay rows are treated equally."""
        return self.loss(encoded.embeddings[0], encoded.embeddings[1])

    def loss(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """The loss of the embeddings of two views, (n, d) each."""
        correlation = _standardised(first).T @ _standardised(second) / len(first)
        errors = (correlation - torch.eye(len(correlation), dtype=first.dtype, device=first.device)).square()
        on = errors.diagonal().sum()
        off = (errors - torch.diag(errors.diagonal())).sum()
        return self.scale * (on + self.off_diagonal * off)


def _standardised(embeddings: torch.Tensor) -> torch.Tensor:
    centred = embeddings - embeddings.mean(0)
    return centred / (centred.square().mean(0) + EPSILON).sqrt()
