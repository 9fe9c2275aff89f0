"""What an alignment promises: a loss that holds the network to a reference, and a reference that follows it."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn

from climb.nets import Encoded


class Alignment(nn.Module):
    """The alignment socket: what must not drift? Its trainable parameters go to the optimiser."""

    needs_replay: ClassVar[bool] = True
    """Whether it has nothing to say about a batch without replay rows."""
    needs_boundaries: ClassVar[bool] = False
    """Whether it must be told where tasks end; tables mark methods that are."""
    asks_of_all: ClassVar[bool] = False
    """Whether each `forward` asks ``teacher`` about all rows and both views, once. It may then be asked beforehand."""
    moves_each_step: ClassVar[bool] = True
    """Whether `after_step` may change ``teacher``; what is made of its weights is then made anew in each step."""

    @property
    def teacher(self) -> nn.Module | None:
        """A reference network that can be evaluated in place of the student, if there is one; it changes in place."""
        return None

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        """The scalar loss; ``objective`` is the objective's loss of the same batch, without gradient."""
        raise TypeError(f"{type(self).__name__} must define forward(encoded, objective)")

    def forwards(self, rows: int, replay_rows: int) -> int:
        """Views that `forward` sends through a reference network, of a batch with so many rows; for the budget."""
        return 0

    def before_batch(self, student: nn.Module) -> None:
        """A stream mini-batch has arrived; no pass over it yet."""

    def after_step(self, student: nn.Module) -> None:
        """The student has taken a gradient step; it is not to be changed here."""

    def after_batch(self, student: nn.Module) -> None:
        """All passes over a stream mini-batch are done."""

    def on_boundary(self, student: nn.Module) -> None:
        """A task has ended; called only where ``needs_boundaries``."""
