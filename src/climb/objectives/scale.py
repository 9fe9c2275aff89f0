"""SCALE's pseudo-supervised contrastive loss (Yu et al., 2023)."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from climb.errors import InputError
from climb.nets import Encoded
from climb.objectives.contract import Objective

SIMILARITY_TEMPERATURE = 0.1
BASE_TEMPERATURE = 0.07
"""The supervised contrastive loss (Khosla et al., 2020) is scaled by T / 0.07."""


class Scale(Objective):
    """Contrastive loss with pseudo-labels: stream images with similar features are positives of each other.

    Similarity. h_v (n, f) are the unit features of view v. For each of the four ordered pairs of views (v, w), take
    -(2 - 2 h_v h_w^T) / 0.1 without its diagonal, and average its softmax over rows and its softmax over columns.
    S (n, n) is the mean over the four pairs. It has no gradient.

    Positives. P_ij is true if S_ij > mean S + positives * (max S - mean S) and both rows are stream rows, and on the
    diagonal. Replayed images are negatives only.

    Loss. u are unit embeddings. For each view a of a stream row i, the positives p are all other views of rows j with
    P_ij::

        L = T / 0.07 * mean over a of the mean over its positives p of
            -log(exp(u_a.u_p / T) / sum over all views k != a of exp(u_a.u_k / T))

    Where sources disagree:

    - Features are normalised before the similarity. The original announces this in a comment but does not do it. Only
      for unit vectors is 2 - 2 h h^T a squared distance; otherwise the share of positives depends on their length.
    - Mean and maximum of S are over all pairs of different rows, replay rows included, as S is a distribution over all.

    Args:
        temperature: T.
        positives: threshold between the mean (0) and the maximum (1) of S. 0.1 suits streams with similar neighbours,
            0.3 shuffled streams.
    """

    settings = ()
    needs_stream = True

    def __init__(self, temperature: float = 0.1, positives: float = 0.1) -> None:
        super().__init__()
        if not temperature > 0:
            raise InputError(f"SCALE's temperature is {temperature}; allowed: above 0")
        if not 0 <= positives <= 1:
            raise InputError(f"SCALE's positives is {positives}; allowed: 0 (above the mean) to 1 (none)")
        self.temperature = temperature
        self.positives = positives

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The loss of a training batch."""
        if len(encoded.stream_rows) == 0:
            raise InputError("SCALE needs stream rows; this batch has replay rows only")
        stream = encoded.stream_rows
        rows = encoded.embeddings.shape[1]
        same = torch.eye(rows, dtype=torch.bool, device=stream.device).index_select(0, stream)  # (s, n)
        # Anchors and positives are stream rows. Replay rows are negatives only.
        similar = self.similar_rows(encoded.features).index_select(0, stream) & same.any(0)
        positive = (similar | same).repeat(2, 2)  # (2s, 2n): both views of an anchor, both views of a candidate
        both = torch.cat([stream, stream + rows])
        itself = torch.eye(2 * rows, dtype=torch.bool, device=stream.device).index_select(0, both)
        unit = F.normalize(encoded.embeddings, dim=2)
        logits = unit.index_select(1, stream).flatten(0, 1) @ unit.flatten(0, 1).T / self.temperature
        total = logits.masked_fill(itself, float("-inf")).logsumexp(1, keepdim=True)
        chosen = (positive & ~itself).to(logits.dtype)
        per_anchor = ((total - logits) * chosen).sum(1) / chosen.sum(1)
        return per_anchor.mean() * (self.temperature / BASE_TEMPERATURE)

    @torch.no_grad()
    def similar_rows(self, features: torch.Tensor) -> torch.Tensor:
        """bool (n, n): pairs of different rows with similar features (2, n, f), stream and replay rows."""
        n = features.shape[1]
        unit = F.normalize(features, dim=2)
        logits = -(2 - 2 * torch.einsum("vif,wjf->vwij", unit, unit)) / SIMILARITY_TEMPERATURE
        diagonal = torch.eye(n, dtype=torch.bool, device=features.device)
        logits = logits.masked_fill(diagonal, float("-inf"))
        similarity = (0.5 * (logits.softmax(3) + logits.softmax(2))).mean((0, 1))
        mean = similarity.sum() / max(n * (n - 1), 1)
        return similarity > torch.lerp(mean, similarity.max(), self.positives)
