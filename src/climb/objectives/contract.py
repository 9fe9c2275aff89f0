"""What an objective promises: a loss of an encoded training batch."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from climb.nets import Encoded


class Objective(nn.Module):
    """The objective socket: what do we learn? Its parameters, if any, are trained."""

    final_norm: ClassVar[bool] = True
    """Whether the projector it is used with ends in a batch norm."""
    needs_stream: ClassVar[bool] = False
    """Whether it cannot learn from a batch of replay rows alone."""
    needs_replay: ClassVar[bool] = False
    """Whether parts of it are idle in a method that trains on no stored image as it is."""
    falls: ClassVar[bool] = True
    """Whether steps on the same views lower its loss. False where what it is held to may run ahead of the student;
    `climb.checks.check_method` then does not ask."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The scalar loss."""
        raise TypeError(f"{type(self).__name__} must define forward(encoded)")

    def forwards(self, rows: int) -> int:
        """Views that `forward` sends through a network of its own without gradient, of so many rows; for the budget."""
        return 0

    def on_first_replay(self, student: nn.Module) -> None:
        """The first batch with replay rows is about to be trained on."""

    def after_step(self, student: nn.Module) -> None:
        """The student has taken a gradient step: objectives that follow it with an average do so here. It is not to be
        changed."""
