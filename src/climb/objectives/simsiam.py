"""SimSiam: two views predict each other, without negatives (Chen and He, 2021)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from climb.nets import Encoded
from climb.objectives.contract import Objective


class SimSiam(Objective):
    """A trained head q predicts, from the embedding of each view, the embedding of the other view.

    z1 and z2 are the embeddings of the two views, and sg stops the gradient::

        L = mean over images of -1/2 [cos(q(z1), sg z2) + cos(q(z2), sg z1)]

    Without negatives, a constant embedding is optimal (loss -1). The stopped gradient and the predictor prevent this
    collapse, but not always with small batches: watch the spread of the features.

    Where sources disagree: the predictor receives both views in one call, like the projector, so its batch norm uses
    statistics of both. The original calls it once per view. The predictor has the common learning rate; the original
    can give it one of its own, without a schedule.

    Args:
        predictor: q, from embeddings (m, d) to (m, d). Trained.

    >>> z = torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]]])  # one image, its two views
    >>> round(SimSiam.loss(z, z).item(), 4)
    -0.6
    """

    settings = ()

    def __init__(self, predictor: nn.Module) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch. Stream and replay rows are treated equally."""
        embeddings = encoded.embeddings
        predicted = self.predictor(embeddings.flatten(0, 1)).view_as(embeddings)
        return self.loss(predicted, embeddings)

    @staticmethod
    def loss(predicted: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """The loss of predictions and embeddings, (2, n, d) each. The embeddings get no gradient."""
        return -F.cosine_similarity(predicted, embeddings.detach().flip(0), dim=2).mean()
