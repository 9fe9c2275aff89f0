"""SCALE's pseudo-supervised contrastive loss (Yu et al., 2023)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F

from climb.errors import InputError
from climb.nets import Encoded
from climb.objectives.contract import Objective

SIMILARITY_TEMPERATURE = 0.1
BASE_TEMPERATURE = 0.07  # of the supervised contrastive loss (Khosla et al., 2020), which scales its loss by T / 0.07


class Scale(Objective):
    """Stream images that the encoder finds alike are positives of each other; replayed images are negatives only.

    Similarity. With unit features h_v (n, f) of view v, for each of the four ordered pairs of views (v, w) take
    -(2 - 2 h_v h_w^T) / 0.1, leave out the diagonal, and average its softmax over rows and its softmax over columns;
    S (n, n) is the mean of the four. It gets no gradient.

    Positives. P_ij holds where S_ij > mean S + positives * (max S - mean S) and both rows come from the stream, and
    on the diagonal.

    Loss. With unit embeddings u, for each view a of a stream row i, its positives being all views of rows j with P_ij
    but itself::

        L = T / 0.07 * mean over a of the mean over its positives p of
            -log(exp(u_a.u_p / T) / sum over all views k != a, replayed ones too, of exp(u_a.u_k / T))

    Where sources disagree: features are brought to unit length before the similarity. The original says so in a comment
    and does not do it, yet 2 - 2 h h^T is a squared distance of unit vectors only; left as they are, the softmax would
    harden with the features' length and the share of positives would follow it. Mean and maximum are
    over all pairs of different rows of the batch, replayed ones too, since S is a distribution over all of them.
    Which rows are anchors is told by index, never by their place in the batch.

    Args:
        temperature: T.
        positives: how far above the mean, on the way to the maximum, a similarity must lie: 0.1 suits streams whose
            neighbours are alike, 0.3 shuffled ones.
    """

    needs_stream: ClassVar[bool] = True

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
            raise InputError("SCALE's anchors are stream rows; this batch has replay rows only")
        stream = encoded.stream_rows
        rows = encoded.embeddings.shape[1]
        same = torch.eye(rows, dtype=torch.bool, device=stream.device).index_select(0, stream)  # (s, n)
        # Anchors are the rows selected; positives, those among the same rows. Replayed rows are negatives only.
        alike = self.alike(encoded.features).index_select(0, stream) & same.any(0)
        positive = (alike | same).repeat(2, 2)  # (2s, 2n): both views of an anchor, both views of a candidate
        both = torch.cat([stream, stream + rows])
        itself = torch.eye(2 * rows, dtype=torch.bool, device=stream.device).index_select(0, both)
        unit = F.normalize(encoded.embeddings, dim=2)
        logits = unit.index_select(1, stream).flatten(0, 1) @ unit.flatten(0, 1).T / self.temperature
        total = logits.masked_fill(itself, float("-inf")).logsumexp(1, keepdim=True)
        chosen = (positive & ~itself).to(logits.dtype)
        per_anchor = ((total - logits) * chosen).sum(1) / chosen.sum(1)
        return per_anchor.mean() * (self.temperature / BASE_TEMPERATURE)

    @torch.no_grad()
    def alike(self, features: torch.Tensor) -> torch.Tensor:
        """bool (n, n): which different rows the features (2, n, f) say are alike, stream and replayed alike."""
        n = features.shape[1]
        unit = F.normalize(features, dim=2)
        logits = -(2 - 2 * torch.einsum("vif,wjf->vwij", unit, unit)) / SIMILARITY_TEMPERATURE
        diagonal = torch.eye(n, dtype=torch.bool, device=features.device)
        logits = logits.masked_fill(diagonal, float("-inf"))
        similarity = (0.5 * (logits.softmax(3) + logits.softmax(2))).mean((0, 1))
        mean = similarity.sum() / max(n * (n - 1), 1)
        return similarity > torch.lerp(mean, similarity.max(), self.positives)
