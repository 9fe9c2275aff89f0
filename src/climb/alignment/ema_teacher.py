"""Distillation from an exponential moving average of the network (CLIMB; CLA-E and CLA-b, Cignoni et al., 2025)."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import nn

from climb.alignment.contract import Alignment
from climb.alignment.frozen_copy import frozen_copy
from climb.nets import Encoded


class EmaTeacher(Alignment):
    """A trained head predicts, from each replayed view, what the averaged network says of that view.

    With z the student's embedding of view v of row i, z' the teacher's of the same view and a the head, over both
    views of r rows::

        L = - 1 / (2 r) * sum over i and v of cos(a(z_iv), z'_iv)
        teacher <- decay * teacher + (1 - decay) * student

    The rows are the replayed ones (CLIMB, CLA-E), or, for methods without a memory, all of the batch (CLA-b).

    The teacher averages parameters only. It runs in train mode: it normalises by the statistics of its own batch and
    keeps running statistics of its own, which serve when it is evaluated. Until it has run once it takes the student's.

    Args:
        student: the network to follow; the teacher starts as its copy.
        aligner: the head that maps the student's embeddings to the teacher's.
        decay: weight of the old teacher in each average.
        period: average after every gradient "step", or once per stream mini-"batch".
        train_aligner: False freezes the head at its random start, as the released code of the paper does.
        rows: which rows are held to the teacher: those of the "replay", or "all".
    """

    def __init__(
        self,
        student: nn.Module,
        aligner: nn.Module,
        *,
        decay: float = 0.999,
        period: Literal["step", "batch"] = "step",
        train_aligner: bool = True,
        rows: Literal["replay", "all"] = "replay",
    ) -> None:
        super().__init__()
        self.aligner = aligner.requires_grad_(train_aligner)
        self._teacher = frozen_copy(student)
        self.decay = decay
        self.period = period
        self.rows = rows
        self._has_run = False
        # Of the class these are defaults; what this one does depends on its rows and period.
        self.needs_replay = rows == "replay"  # type: ignore[misc]
        self.asks_of_all = rows == "all" and type(self).forward is EmaTeacher.forward  # type: ignore[misc]
        moves_otherwise = type(self).after_step is not EmaTeacher.after_step
        self.moves_each_step = period == "step" or moves_otherwise  # type: ignore[misc]

    @property
    def teacher(self) -> nn.Module:
        """The averaged network."""
        return self._teacher

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """Mean of -cos(aligner(z), teacher's z) over both views of the rows (equation 1 of the paper)."""
        embeddings = encoded.embeddings
        if self.rows == "replay":
            embeddings = embeddings.index_select(1, encoded.replay_rows)
        predicted = self.aligner(embeddings.flatten(0, 1)).to(embeddings.dtype)
        target = encoded.embedded_by(self._teacher, self.rows).flatten(0, 1)  # last: it may have to be waited for
        self._has_run = True
        return -F.cosine_similarity(predicted, target.to(embeddings.dtype), dim=1).mean()

    def forwards(self, rows: int, replay_rows: int) -> int:
        """Both views of the rows."""
        return 2 * (replay_rows if self.rows == "replay" else rows)

    def after_step(self, student: nn.Module) -> None:
        """Average, if the period says so."""
        if self.period == "step":
            self._average(student)

    def after_batch(self, student: nn.Module) -> None:
        """Average, if the period says so."""
        if self.period == "batch":
            self._average(student)
        if not self._has_run:
            torch._foreach_copy_(list(self._teacher.buffers()), list(student.buffers()))

    # Whether it has run is state too: a memory that prunes may fall below a replay batch, and replay pauses. A teacher
    # loaded in such a pause must not take over the student's statistics again.

    def get_extra_state(self) -> torch.Tensor:
        """Whether it has run, as one number: states are compared and sent around as tensors."""
        return torch.tensor(self._has_run)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Continue where `get_extra_state` was taken."""
        self._has_run = bool(state)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        state_dict.setdefault(f"{prefix}_extra_state", torch.tensor(False))  # older states do not tell
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @torch.no_grad()
    def _average(self, student: nn.Module) -> None:
        torch._foreach_lerp_(list(self._teacher.parameters()), list(student.parameters()), 1.0 - self.decay)
