"""SimSiam: two views that predict each other, and nothing to compare them with (Chen and He, 2021)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from climb.nets import Encoded
from climb.objectives.contract import Objective


class SimSiam(Objective):
    """A trained head q predicts, from each view's embedding, the embedding of the image's other view.

    With z1 and z2 the embeddings of an image's views and sg a value that no gradient passes::

        L = mean over images of -1/2 [cos(q(z1), sg z2) + cos(q(z2), sg z1)]

    Without negatives a constant embedding would be a perfect answer (loss -1); the stopped gradient and the predictor
    are what keeps training away from it. At small batches they may not: watch the spread of the features.

    The predictor sees both views in one call, as the projector does, so its batch norm takes its statistics over both;
    the original calls it once per view. It is trained at the learning rate of everything else; the original's option of
    a rate of its own, exempt from the schedule, has no place where the rate is constant.

    Args:
        predictor: q, from embeddings (m, d) to (m, d). Trained.

    >>> z = torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]]])  # one image, its two views
    >>> round(SimSiam.loss(z, z).item(), 4)
    -0.6
    """

    def __init__(self, predictor: nn.Module) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch, stream and replay rows alike."""
        embeddings = encoded.embeddings
        predicted = self.predictor(embeddings.flatten(0, 1)).view_as(embeddings)
        return self.loss(predicted, embeddings)

    @staticmethod
    def loss(predicted: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """The loss of predictions and embeddings, (2, n, d) each; no gradient passes through the embeddings."""
        return -F.cosine_similarity(predicted, embeddings.detach().flip(0), dim=2).mean()
