"""BYOL: predict the embedding of the other view by a momentum network (Grill et al., 2020)."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from climb.errors import InputError
from climb.nets import Encoded
from climb.objectives.contract import Objective


class BYOL(Objective):
    """A trained head q maps the embedding of each view to the momentum network's embedding of the other view.

    z1 and z2 are the student's embeddings of the two views, z1' and z2' those of the momentum network, without
    gradient::

        L = mean over images of [2 - 2 cos(q(z1), z2')] + [2 - 2 cos(q(z2), z1')]

    After each gradient step, momentum <- decay * momentum + (1 - decay) * student.

    Where sources disagree:

    - The two terms are summed, as in the paper, not averaged.
    - The decay is constant. The paper raises it from 0.996 to 1 over a training of known length; a stream has none.
    - Only parameters are averaged. The momentum network runs in train mode and keeps its own batch statistics.
    - The predictor receives both views in one call, like the projector.

    Args:
        student: the trained network. The momentum network starts as its copy.
        predictor: q, from embeddings (m, d) to (m, d). Trained.
        decay: weight of the old momentum network in each average, 0 to 1.

    >>> predicted, targets = torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]]]), torch.tensor([[[0.0, 1.0]], [[1.0, 0.0]]])
    >>> round(BYOL.loss(predicted, targets).item(), 4)  # (2 - 2) + (2 - 2 * 0.8): each predicts the other's target
    0.4
    """

    settings = ()

    def __init__(self, student: nn.Module, predictor: nn.Module, decay: float = 0.99) -> None:
        super().__init__()
        if not 0 <= decay <= 1:
            raise InputError(f"BYOL's decay is {decay}; allowed: 0 (a copy of the last step) to 1 (never moves)")
        self.predictor = predictor
        self.momentum = copy.deepcopy(student).requires_grad_(False).train()
        self.decay = decay

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch. Stream and replay rows are treated equally."""
        embeddings = encoded.embeddings
        targets = encoded.embedded_by(self.momentum)
        predicted = self.predictor(embeddings.flatten(0, 1)).view_as(embeddings)
        return self.loss(predicted, targets.to(embeddings.dtype))

    @staticmethod
    def loss(predicted: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of predictions and momentum embeddings, (2, n, d) each, with views in the same order."""
        cosines = F.cosine_similarity(predicted, targets.flip(0), dim=2)
        return (2 - 2 * cosines).sum(0).mean()

    def forwards(self, rows: int) -> int:
        """The momentum network encodes both views of every row."""
        return 2 * rows

    @torch.no_grad()
    def after_step(self, student: nn.Module) -> None:
        """Update the moving average."""
        torch._foreach_lerp_(list(self.momentum.parameters()), list(student.parameters()), 1.0 - self.decay)
