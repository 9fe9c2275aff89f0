"""Distillation from the weights that a network started from, in the space of the encoder's features."""

from __future__ import annotations

import torch
from torch import nn

from climb.alignment.contract import Alignment, alignment, alignment_loss, frozen_copy
from climb.alignment.ema_teacher import EmaTeacher
from climb.nets import Encoded, Network


@alignment("start-teacher")
class StartTeacher(Alignment):
    """A trained head maps the student's features of a replayed view to those of the network at its start.

    For networks with pretrained weights: the start is worth keeping, and its features mean something, which those of a
    random projector do not. f_iv are the student's features of view v of row i, f'_iv the start's, a the head, and r
    the number of rows::

        L = - 1 / (2 r) * sum over i and v of cos(a(f_iv), f'_iv)

    It takes the place of `EmaTeacher` in every method, if ``align_to_start`` is set. The start stays in evaluation
    mode: its statistics are part of what it knows.

    Args:
        student: the trained network, at its start.
        aligner: the head that maps the student's features to the start's.
        needs_replay: whether the rows are the replay rows only; else the whole batch.
    """

    settings = ("align_to_start",)
    replaces = (EmaTeacher, "align_to_start")

    def __init__(self, student: Network, aligner: nn.Module, *, needs_replay: bool = True) -> None:
        super().__init__()
        self.aligner = aligner
        self.needs_replay = needs_replay  # type: ignore[misc]  # the class attribute is the default
        self.start = _Features(frozen_copy(student.encoder))

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """Mean of -cos(aligner(f), start's f) over both views of the rows."""
        features = encoded.features
        if self.needs_replay:
            features = features.index_select(1, encoded.replay_rows)
        targets = encoded.embedded_by(self.start, "replay" if self.needs_replay else "all")
        return alignment_loss(self.aligner, features, targets)

    def forwards(self, rows: int, replay_rows: int) -> int:
        """Both views of the rows."""
        return 2 * (replay_rows if self.needs_replay else rows)


class _Features(nn.Module):
    """An encoder in evaluation mode, with its features in place of embeddings."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.encoder(images)
        return features, features

    def train(self, mode: bool = True) -> _Features:
        """Stay in evaluation mode."""
        return super().train(False)
