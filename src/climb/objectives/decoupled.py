"""SimCLR's contrast without its positive in the denominator (Yeh et al., 2022), as PCMC trains."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from climb.nets import Encoded
from climb.objectives.contract import Objective


class DecoupledContrast(Objective):
    """SimCLR's loss with the positive left out of the denominator, as PCMC trains on patches.

    With unit embeddings u and p the other view of i: the mean over the 2n views of
    ``-u_i.u_p / T + log sum over k not in {i, p} of exp(u_i.u_k / T)``. Unlike SimCLR's it can be negative.

    >>> loss = DecoupledContrast(temperature=0.5).loss(torch.eye(2), torch.eye(2))
    >>> round(loss.item(), 4)  # log 2 - 2: two orthogonal negatives, one positive
    -1.3069
    """

    def __init__(self, temperature: float = 0.5) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, encoded: Encoded) -> Tensor:
        """The loss of a training batch."""
        return self.loss(encoded.embeddings[0], encoded.embeddings[1])

    def loss(self, first: Tensor, second: Tensor) -> Tensor:
        """The loss of embeddings (n, d) of the two views; n must be at least 2, for there to be negatives."""
        n = first.shape[0]
        unit = F.normalize(torch.cat([first, second]), dim=1)
        logits = unit @ unit.T / self.temperature
        same = torch.eye(n, dtype=torch.bool, device=logits.device).repeat(2, 2)  # both views of one image
        negatives = logits.masked_fill(same, float("-inf")).logsumexp(1)
        positives = (unit[:n] * unit[n:]).sum(1).repeat(2) / self.temperature
        return (negatives - positives).mean()
