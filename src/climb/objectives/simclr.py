"""SimCLR's contrastive loss, and the decoupled loss without the positive in its denominator."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from climb.nets import Encoded
from climb.objectives.contract import Objective


class SimCLR(Objective):
    """NT-Xent (Chen et al., 2020): each view identifies the other view of its image among all views of the batch.

    >>> loss = SimCLR(temperature=0.5).loss(torch.eye(2), torch.eye(2))
    >>> round(loss.item(), 4)  # log(1 + 2 exp(-2)): one positive, two orthogonal negatives
    0.2395
    """

    settings = ("temperature",)

    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch. Stream and replay rows are treated equally."""
        return self.loss(encoded.embeddings[0], encoded.embeddings[1])

    def chance(self, rows: int) -> float | None:
        """The log of the number of views to choose from."""
        return math.log(2 * rows - 1)

    def loss(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Mean over the 2n views, (n, d) per argument, of -log softmax of the positive among all other views."""
        n = first.shape[0]
        unit = F.normalize(torch.cat([first, second]), dim=1)
        logits = unit @ unit.T / self.temperature
        itself = torch.eye(2 * n, dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(itself, float("-inf"))
        positive = torch.arange(2 * n, device=logits.device).roll(n)
        return F.cross_entropy(logits, positive)


class DecoupledContrast(SimCLR):
    """SimCLR's loss without the positive in its denominator (Yeh et al., 2022). PCMC trains with it.

    u are unit embeddings, and p is the other view of i. The loss is the mean over the 2n views of
    ``-u_i.u_p / T + log sum over k not in {i, p} of exp(u_i.u_k / T)``. It can be negative.

    >>> loss = DecoupledContrast(temperature=0.5).loss(torch.eye(2), torch.eye(2))
    >>> round(loss.item(), 4)  # log 2 - 2: two orthogonal negatives, one positive
    -1.3069
    """

    def chance(self, rows: int) -> float | None:
        """The log of the number of negatives; None for one image, which has none."""
        return math.log(2 * rows - 2) if rows > 1 else None

    def loss(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """The loss of the embeddings of two views, (n, d) each. n must be at least 2, so that there are negatives."""
        n = first.shape[0]
        unit = F.normalize(torch.cat([first, second]), dim=1)
        logits = unit @ unit.T / self.temperature
        same = torch.eye(n, dtype=torch.bool, device=logits.device).repeat(2, 2)  # both views of one image
        negatives = logits.masked_fill(same, float("-inf")).logsumexp(1)
        positives = (unit[:n] * unit[n:]).sum(1).repeat(2) / self.temperature
        return (negatives - positives).mean()
