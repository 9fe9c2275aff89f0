"""Distillation from a snapshot at the end of the last task, on replayed images (CaSSLe-R)."""

from __future__ import annotations

import torch
from torch import nn

from climb.alignment.contract import Alignment, alignment, alignment_loss, copy_state, frozen_copy
from climb.nets import Encoded


@alignment("snapshot")
class Snapshot(Alignment):
    """A trained head maps the student's embedding of a replayed view to that of the network after the last task.

    CaSSLe (Fini et al., 2022) with replay. z_iv is the student's embedding of view v of row i, z'_iv the snapshot's,
    a the head, and r the number of replay rows::

        L = 0                                                    during the first task
        L = - 1 / (2 r) * sum over i and v of cos(a(z_iv), z'_iv)    from then on

    Where sources disagree:

    - The first task has no distillation, as in the original. The port to online streams distils from the random
      network. Here the loss of the first task is computed and weighted by zero, so that all steps have one shape. The
      head then has a zero gradient and decays: after s steps to exp(-s * lr * decay / (1 - momentum)).
    - The loss is a negative cosine, as in the other alignments. The original uses the objective's loss (for SimCLR,
      contrastive) between the two networks, on all rows and without replay.
    - The snapshot normalises by its own batch, as in the original, the port and `EmaTeacher`. Its running statistics
      start as the student's at the boundary.

    Args:
        student: the network to copy.
        aligner: the head that maps the student's embeddings to the snapshot's.
    """

    settings = ()
    needs_boundaries = True

    weight: torch.Tensor
    """Scalar buffer: 0 before the first boundary, then 1."""

    def __init__(self, student: nn.Module, aligner: nn.Module) -> None:
        super().__init__()
        self.aligner = aligner
        self.snapshot = frozen_copy(student)
        self.register_buffer("weight", torch.zeros(()))

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """Mean of -cos(aligner(z), snapshot's z) over both views of the replay rows; 0 during the first task."""
        embeddings = encoded.embeddings.index_select(1, encoded.replay_rows)
        return self.weight * alignment_loss(self.aligner, embeddings, encoded.embedded_by(self.snapshot, "replay"))

    def forwards(self, rows: int, replay_rows: int) -> int:
        """Both views of the replay rows, also during the first task."""
        return 2 * replay_rows

    def on_boundary(self, student: nn.Module) -> None:
        """Take a new snapshot."""
        copy_state(student, into=self.snapshot)
        self.weight.fill_(1.0)
