"""Distillation from an exponential moving average of the network (CLIMB; CLA-E and CLA-b, Cignoni et al., 2025)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

from climb.alignment.contract import Alignment, alignment, alignment_loss, frozen_copy
from climb.nets import Encoded


@alignment("ema-teacher")
class EmaTeacher(Alignment):
    """A trained head maps the student's embedding of a view to the averaged network's embedding of the same view.

    z_iv is the student's embedding of view v of row i, z'_iv the teacher's, a the head, and r the number of rows::

        L = - 1 / (2 r) * sum over i and v of cos(a(z_iv), z'_iv)
        teacher <- decay * teacher + (1 - decay) * student

    The rows are the replay rows (CLIMB, CLA-E), or the whole batch for methods without a memory (CLA-b).

    Only parameters are averaged. The teacher runs in train mode: it normalises by its own batch and keeps its own
    running statistics for evaluation. Before its first forward, it copies the student's statistics.

    Args:
        student: the trained network. The teacher starts as its copy.
        aligner: the head that maps the student's embeddings to the teacher's.
        decay: weight of the old teacher in each average.
        period: update after every gradient "step" or after every "batch" of the stream.
        train_aligner: False keeps the head at its random start, as the released code of the paper does.
        rows: rows of the loss: "replay" or "all".
    """

    settings = ("ema_decay", "ema_period", "train_aligner")

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
        self.needs_replay = rows == "replay"  # type: ignore[misc]  # the class attribute is the default

    @property
    def teacher(self) -> nn.Module:
        """The averaged network."""
        return self._teacher

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """Mean of -cos(aligner(z), teacher's z) over both views of the rows (equation 1 of the paper)."""
        embeddings = encoded.embeddings
        if self.rows == "replay":
            embeddings = embeddings.index_select(1, encoded.replay_rows)
        self._has_run = True
        return alignment_loss(self.aligner, embeddings, encoded.embedded_by(self._teacher, self.rows))

    def forwards(self, rows: int, replay_rows: int) -> int:
        """Both views of the rows."""
        return 2 * (replay_rows if self.rows == "replay" else rows)

    def after_step(self, student: nn.Module) -> None:
        """Update the teacher, depending on the period."""
        if self.period == "step":
            self._average(student)

    def after_batch(self, student: nn.Module) -> None:
        """Update the teacher, depending on the period."""
        if self.period == "batch":
            self._average(student)
        if not self._has_run:
            torch._foreach_copy_(list(self._teacher.buffers()), list(student.buffers()))

    # Whether it has run is part of the state: if a pruning memory falls below a replay batch, replay pauses. A teacher
    # that is loaded during such a pause must not copy the student's statistics again.

    def get_extra_state(self) -> torch.Tensor:
        """Whether the teacher has run. A tensor, because states are compared and sent as tensors."""
        return torch.tensor(self._has_run)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Restore the result of `get_extra_state`."""
        self._has_run = bool(state)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        state_dict.setdefault(f"{prefix}_extra_state", torch.tensor(False))  # older states lack it
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @torch.no_grad()
    def _average(self, student: nn.Module) -> None:
        torch._foreach_lerp_(list(self._teacher.parameters()), list(student.parameters()), 1.0 - self.decay)
