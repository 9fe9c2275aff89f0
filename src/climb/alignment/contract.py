"""What an alignment promises: a loss that holds the network to a reference, and a reference that follows it."""

from __future__ import annotations

import torch
from torch import nn

from climb.nets import Encoded


class Alignment(nn.Module):
    """The alignment socket: what must not drift? Its trainable parameters go to the optimiser."""

    @property
    def teacher(self) -> nn.Module | None:
        """A reference network that can be evaluated in place of the student, if there is one."""
        return None

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The scalar loss; only called with at least one replay row."""
        raise TypeError(f"{type(self).__name__} must define forward(encoded)")

    def after_step(self, student: nn.Module) -> None:
        """The student has taken a gradient step."""

    def after_batch(self, student: nn.Module) -> None:
        """All passes over a stream mini-batch are done."""
