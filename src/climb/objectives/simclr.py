"""SimCLR's contrastive loss (NT-Xent; Chen et al., 2020)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from climb.nets import Encoded
from climb.objectives.contract import Objective


class SimCLR(Objective):
    """Each view finds the other view of its image among all views of the batch.

    >>> loss = SimCLR(temperature=0.5).loss(torch.eye(2), torch.eye(2))
    >>> round(loss.item(), 4)  # log(1 + 2 exp(-2)): one positive, two orthogonal negatives
    0.2395
    """

    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch, stream and replay rows alike."""
        return self.loss(encoded.embeddings[0], encoded.embeddings[1])

    def loss(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Mean over the 2n views (n, d) of -log softmax of the positive, itself left out."""
        n = first.shape[0]
        unit = F.normalize(torch.cat([first, second]), dim=1)
        logits = unit @ unit.T / self.temperature
        itself = torch.eye(2 * n, dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(itself, float("-inf"))
        positive = torch.arange(2 * n, device=logits.device).roll(n)
        return F.cross_entropy(logits, positive)
