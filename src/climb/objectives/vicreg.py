"""VICReg: variance, invariance and covariance terms (Bardes et al., 2022)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from climb.nets import Encoded
from climb.objectives.contract import Objective

EPSILON = 1e-4
"""Added to a variance before its root, whose derivative at zero is infinite."""


class VICReg(Objective):
    """Views agree, every dimension keeps a standard deviation of at least one, and dimensions are decorrelated.

    Z1 and Z2 are the embeddings (n, d) of the two views. Variances and covariances are over the batch (divisor n - 1)::

        L = invariance * mean of (Z1 - Z2)^2
          + variance   * sum over views of the mean over dimensions of max(0, 1 - sqrt(var + 1e-4))
          + covariance * sum over views of the sum over i != j of cov_ij^2, divided by d

    Where sources disagree:

    - The invariance term is a mean over dimensions, as in the authors' code, for which the weights 25, 25 and 1 were
      chosen. The paper prints a sum.
    - The variance term is a sum over views, as printed. The authors' code averages it.
    - A batch of one image has variance 0 here, not an undefined one.

    The terms constrain the scale of the embeddings, so the projector ends without a batch norm.

    >>> z = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])  # variances and covariances are all 2
    >>> round(VICReg().loss(z, z).item(), 4)  # (2 * 2^2 / 2) for each view; no other term
    8.0
    """

    settings = ()
    final_norm = False

    def __init__(self, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0) -> None:
        super().__init__()
        self.invariance = invariance
        self.variance = variance
        self.covariance = covariance

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch. Stream and replay rows are treated equally."""
        return self.loss(encoded.embeddings[0], encoded.embeddings[1])

    def loss(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """The loss of the embeddings of two views, (n, d) each."""
        spread = zip(_spread(first), _spread(second), strict=True)
        variance, covariance = (one + other for one, other in spread)
        return self.invariance * F.mse_loss(first, second) + self.variance * variance + self.covariance * covariance


def _spread(embeddings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The variance term and the covariance term of one view (n, d)."""
    n, d = embeddings.shape
    centred = embeddings - embeddings.mean(0)
    covariance = centred.T @ centred / max(n - 1, 1)
    variance = covariance.diagonal()
    lacking = F.relu(1 - (variance + EPSILON).sqrt()).mean()
    shared = (covariance - torch.diag(variance)).square().sum() / d
    return lacking, shared
