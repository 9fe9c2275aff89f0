"""Distillation from embeddings that the memory stores with its images (CLA-R; Cignoni et al., 2025)."""

from __future__ import annotations

import torch
from torch import nn

from climb.alignment.contract import Alignment, alignment, alignment_loss
from climb.errors import ClimbError
from climb.nets import Encoded


@alignment("stored-targets")
class StoredTargets(Alignment):
    """A trained head maps the student's embedding of a replayed view to the embedding stored with the image.

    z_iv is the student's embedding of view v of row i, s_i the stored one, a the head, and r the number of replay
    rows::

        L = - 1 / (2 r) * sum over i and v of cos(a(z_iv), s_i)

    Both views have the same target, without gradient. There is no second network, so targets cost no forward passes.
    The memory determines the target: CLA-R's memory replaces it by its mean with the new embedding at every replay. The
    CLIMB paper describes the embedding of the first pass; for that, use a memory that never refreshes embeddings.

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

    settings = ()

    def __init__(self, aligner: nn.Module) -> None:
        super().__init__()
        self.aligner = aligner

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """Mean of -cos(aligner(z), stored z) over both views of the replay rows."""
        if encoded.targets is None:
            needs = "StoredTargets needs a memory that stores an embedding per image"
            raise ClimbError(f"{needs}, such as FifoMemory(..., embedding_rate=0.5)")
        embeddings = encoded.embeddings.index_select(1, encoded.replay_rows)
        return alignment_loss(self.aligner, embeddings, encoded.targets.detach().repeat(2, 1, 1))
