"""VICReg: variance, invariance and covariance, each asked for by name (Bardes et al., 2022)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F

from climb.nets import Encoded
from climb.objectives.contract import Objective

EPSILON = 1e-4  # added to a variance before its root, whose slope at zero is infinite


class VICReg(Objective):
    """Views agree, every dimension keeps a spread of at least one, and no two dimensions say the same.

    With Z1 and Z2 the two views' embeddings (n, d), and variances and covariances over the batch (divided by n - 1)::

        L = invariance * mean of (Z1 - Z2)^2
          + variance   * sum over views of the mean over dimensions of max(0, 1 - sqrt(var + 1e-4))
          + covariance * sum over views of the sum over i != j of cov_ij^2, divided by d

    Where sources disagree: the invariance term is a mean over dimensions too, as in the authors' code, for which
    the weights 25, 25, 1 were chosen; the paper prints a sum. The variance term is summed over the views, as printed;
    the authors' code averages it. A batch of one image is taken to have no variance rather than an undefined one.

    The terms need embeddings whose scale is free, so the projector ends without a batch norm.

    >>> z = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])  # variances and covariances are all 2
    >>> round(VICReg().loss(z, z).item(), 4)  # (2 * 2^2 / 2) for each view; no other term
    8.0
    """

    final_norm: ClassVar[bool] = False

    def __init__(self, invariance: float = 25.0, variance: float = 25.0, covariance: float = 1.0) -> None:
        super().__init__()
        self.invariance = invariance
        self.variance = variance
        self.covariance = covariance

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch, stream and replay rows alike."""
        return self.loss(encoded.embeddings[0], encoded.embeddings[1])

    def loss(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """The loss of the two views' embeddings, (n, d) each."""
        variance_one, covariance_one = _spread(first)
        variance_two, covariance_two = _spread(second)
        return (
            self.invariance * F.mse_loss(first, second)
            + self.variance * (variance_one + variance_two)
            + self.covariance * (covariance_one + covariance_two)
        )


def _spread(embeddings: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What one view (n, d) lacks in variance, and has too much of in covariance."""
    n, d = embeddings.shape
    centred = embeddings - embeddings.mean(0)
    covariance = centred.T @ centred / max(n - 1, 1)
    variance = covariance.diagonal()
    lacking = F.relu(1 - (variance + EPSILON).sqrt()).mean()
    shared = (covariance - torch.diag(variance)).square().sum() / d
    return lacking, shared
