"""Barlow Twins: views that correlate dimension by dimension, and in no other way (Zbontar et al., 2021)."""

from __future__ import annotations

from typing import ClassVar

import torch

from climb.nets import Encoded
from climb.objectives.contract import Objective

EPSILON = 1e-5  # added to a variance before its root, as batch norms do: a constant dimension has no scale


class BarlowTwins(Objective):
    """The cross-correlation matrix of the two views' embeddings becomes the identity.

    Each view is standardised per dimension over the batch (biased variance, as a batch norm), giving Y1 and Y2; with
    C = Y1^T Y2 / n, of shape (d, d)::

        L = scale * [ sum over i of (C_ii - 1)^2  +  off_diagonal * sum over i != j of C_ij^2 ]

    The diagonal makes embeddings agree between views, the rest makes their dimensions say different things, so that
    a constant embedding is no solution. The loss standardises by itself, so the projector ends without a batch norm.

    Where sources disagree: the paper has no ``scale`` (it is 1 there), but the sum grows with d, and implementations
    shrink it to suit their optimiser; 0.1 is common. ``off_diagonal`` 0.005 is the paper's.

    >>> z = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])  # two uncorrelated dimensions
    >>> round(BarlowTwins().loss(z, z).item(), 4), round(BarlowTwins().loss(z, z.flip(1)).item(), 4)
    (0.0, 0.201)
    """

    final_norm: ClassVar[bool] = False

    def __init__(self, off_diagonal: float = 0.005, scale: float = 0.1) -> None:
        super().__init__()
        self.off_diagonal = off_diagonal
        self.scale = scale

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch, stream and replay rows alike."""
        return self.loss(encoded.embeddings[0], encoded.embeddings[1])

    def loss(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """The loss of the two views' embeddings, (n, d) each."""
        correlation = _standardised(first).T @ _standardised(second) / len(first)
        wrong = (correlation - torch.eye(len(correlation), dtype=first.dtype, device=first.device)).square()
        on = wrong.diagonal().sum()
        off = (wrong - torch.diag(wrong.diagonal())).sum()
        return self.scale * (on + self.off_diagonal * off)


def _standardised(embeddings: torch.Tensor) -> torch.Tensor:
    centred = embeddings - embeddings.mean(0)
    return centred / (centred.square().mean(0) + EPSILON).sqrt()
