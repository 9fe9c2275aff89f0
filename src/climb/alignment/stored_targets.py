"""Distillation from what the memory remembers of its images (CLA-R; Cignoni et al., 2025)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from climb.alignment.contract import Alignment
from climb.errors import ClimbError
from climb.nets import Encoded


class StoredTargets(Alignment):
    """A trained head predicts, from each replayed view, the embedding stored with its image.

    With r replay rows, z the student's embedding of view v of row i, s the stored one and a the head::

        L = - 1 / (2 r) * sum over i and v of cos(a(z_iv), s_i)

    Both views have the same target, and no gradient goes into it. There is no second network, so the target costs no
    forward. What the target is, is the memory's affair: CLA-R's blends half of the new embedding into it at every
    replay. The CLIMB paper tells of the embedding of the first pass, used as it is; that is a memory whose embeddings
    are never refreshed.

    Args:
        aligner: the head that maps the student's embeddings to the stored ones.

    >>> z = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    >>> row, none = torch.tensor([0]), torch.zeros(0, dtype=torch.int64)
    >>> encoded = Encoded(
    ...     views=z, features=z, embeddings=z, stream_rows=none, replay_rows=row, targets=torch.tensor([[3.0, 4.0]])
    ... )
    >>> round(StoredTargets(nn.Identity())(encoded, torch.tensor(0.0)).item(), 4)  # -(3/5 + 4/5) / 2
    -0.7
    """

    def __init__(self, aligner: nn.Module) -> None:
        super().__init__()
        self.aligner = aligner

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """Mean of -cos(aligner(z), stored z) over both views of the replay rows."""
        if encoded.targets is None:
            raise ClimbError(
                "StoredTargets needs a memory that stores an embedding per image; this one gave none: "
                "use one such as FifoMemory(..., embedding_rate=0.5)"
            )
        target = encoded.targets.detach().repeat(2, 1)
        predicted = self.aligner(encoded.embeddings.index_select(1, encoded.replay_rows).flatten(0, 1))
        return -F.cosine_similarity(predicted.to(target.dtype), target, dim=1).mean()
