"""Distillation from the network at the end of the last task, on replayed images (CaSSLe-R)."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from climb.alignment.contract import Alignment
from climb.alignment.frozen_copy import copy_state, frozen_copy
from climb.nets import Encoded


class Snapshot(Alignment):
    """A trained head predicts, from each replayed view, what the network said of it when the last task ended.

    CaSSLe (Fini et al., 2022) with replay. With r replay rows, z the student's embedding of view v of row i, z' the
    snapshot's embedding of the same view and a the head::

        L = 0                                                    during the first task
        L = - 1 / (2 r) * sum over i and v of cos(a(z_iv), z'_iv)    from then on

    Where sources disagree:

    - The first task distils from nothing, as in the original. Its port to online streams distils from the random
      network there. The loss is computed all the same and weighted by zero, so that every step has the same shape; the
      head, whose gradient is zero then, shrinks by its decay: after s steps to exp(-s * lr * decay / (1 - momentum)).
    - The loss is the negative cosine of the other alignments here. The original repeats the objective's own loss
      (for SimCLR, contrastive) between the two networks, on all rows and without replay.
    - The snapshot normalises by the statistics of its own batch, as in the original and the port, and as the EMA
      teacher does here. Its running statistics start as the student's at the boundary.

    Args:
        student: the network to take snapshots of.
        aligner: the head that maps the student's embeddings to the snapshot's.
    """

    needs_boundaries: ClassVar[bool] = True

    weight: torch.Tensor
    """Scalar buffer: 0 until the first boundary, 1 from then on."""

    def __init__(self, student: nn.Module, aligner: nn.Module) -> None:
        super().__init__()
        self.aligner = aligner
        self.snapshot = frozen_copy(student)
        self.register_buffer("weight", torch.zeros(()))

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """Mean of -cos(aligner(z), snapshot's z) over both views of the replay rows; 0 during the first task."""
        embeddings = encoded.embeddings.index_select(1, encoded.replay_rows).flatten(0, 1)
        target = encoded.embedded_by(self.snapshot, "replay").flatten(0, 1)
        predicted, target = self.aligner(embeddings).to(embeddings.dtype), target.to(embeddings.dtype)
        return -self.weight * F.cosine_similarity(predicted, target, dim=1).mean()

    def forwards(self, rows: int, replay_rows: int) -> int:
        """Both views of the replay rows; during the first task too."""
        return 2 * replay_rows

    def on_boundary(self, student: nn.Module) -> None:
        """Take a new snapshot, and distil from now on."""
        copy_state(student, into=self.snapshot)
        self.weight.fill_(1.0)
