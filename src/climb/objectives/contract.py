"""The contract of an objective: a scalar loss of an encoded training batch."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import torch
from torch import nn

from climb.nets import Encoded


class Objective(nn.Module):
    """Base class of objectives. Its parameters are trained."""

    settings: ClassVar[tuple[str, ...] | None] = None
    """Settings of the learner that it depends on, such as ``temperature``; None if it does not declare them."""
    final_norm: ClassVar[bool] = True
    """Whether its projector ends with a batch norm."""
    needs_stream: ClassVar[bool] = False
    """Whether it needs stream rows in every batch."""
    needs_replay: ClassVar[bool] = False
    """Whether some of its parameters train on replay rows only."""
    loss_decreases: ClassVar[bool] = True
    """Whether repeated steps on the same views lower its loss, which `climb.testing.check_method` checks. False if its
    targets may move ahead of the student."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "falls" in vars(cls):
            warnings.warn("falls is now loss_decreases; the next release removes the old name", DeprecationWarning, 2)
            cls.loss_decreases = vars(cls)["falls"]

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The scalar loss."""
        raise TypeError(f"{type(self).__name__} must define forward(encoded)")

    def forwards(self, rows: int) -> int:
        """Views that `forward` encodes with a network of its own, given so many rows. The budget counts them."""
        return 0

    def chance(self, rows: int) -> float | None:
        """The loss of a batch of so many rows whose views cannot be told apart; None if it is not known."""
        return None

    def on_first_replay(self, student: nn.Module) -> None:
        """Called before the first batch with replay rows."""

    def after_step(self, student: nn.Module) -> None:
        """Called after each gradient step of the student, for moving averages of it. It must not be changed."""
