"""Distillation from an exponential moving average of the network, on replayed images (CLA-E, CLIMB)."""

from __future__ import annotations

import copy
from typing import Literal

import torch
import torch.nn.functional as F
from torch import nn

from climb.alignment.contract import Alignment
from climb.nets import Encoded


class EmaTeacher(Alignment):
    """A trained head predicts, from each replayed view, what the averaged network says of that view.

    The teacher averages parameters only. It runs in train mode: it normalises by the statistics of its own batch and
    keeps running statistics of its own, which serve when it is evaluated.

    Args:
        student: the network to follow; the teacher starts as its copy.
        aligner: the head that maps the student's embeddings to the teacher's.
        decay: weight of the old teacher in each average.
        period: average after every gradient "step", or once per stream mini-"batch".
        train_aligner: False freezes the head at its random start, as the released code of the paper does.
    """

    def __init__(
        self,
        student: nn.Module,
        aligner: nn.Module,
        *,
        decay: float = 0.999,
        period: Literal["step", "batch"] = "step",
        train_aligner: bool = True,
    ) -> None:
        super().__init__()
        self.aligner = aligner.requires_grad_(train_aligner)
        self._teacher = copy.deepcopy(student).requires_grad_(False)
        self.decay = decay
        self.period = period

    @property
    def teacher(self) -> nn.Module:
        """The averaged network."""
        return self._teacher

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """Mean of -cos(aligner(z), teacher's z) over both views of the replay rows (equation 1 of the paper)."""
        views = encoded.views.index_select(1, encoded.replay_rows).flatten(0, 1)
        with torch.no_grad():
            _, target = self._teacher(views)
        predicted = self.aligner(encoded.embeddings.index_select(1, encoded.replay_rows).flatten(0, 1))
        return -F.cosine_similarity(predicted.float(), target.float(), dim=1).mean()

    def forwards(self, rows: int, replay_rows: int) -> int:
        """Both views of the replay rows."""
        return 2 * replay_rows

    def after_step(self, student: nn.Module) -> None:
        """Average, if the period says so."""
        if self.period == "step":
            self._average(student)

    def after_batch(self, student: nn.Module) -> None:
        """Average, if the period says so."""
        if self.period == "batch":
            self._average(student)

    @torch.no_grad()
    def _average(self, student: nn.Module) -> None:
        torch._foreach_lerp_(list(self._teacher.parameters()), list(student.parameters()), 1.0 - self.decay)
