"""What an alignment promises: a loss that holds the network to a reference, and a reference that follows it."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import nn

from climb.objectives.contract import Encoded


class Alignment(Protocol):
    """The alignment socket: what must not drift? A module; its trainable parameters go to the optimiser."""

    @property
    def teacher(self) -> nn.Module | None:
        """A reference network that can be evaluated in place of the student, if there is one."""

    def __call__(self, encoded: Encoded) -> torch.Tensor:
        """The scalar loss; only called with at least one replay row."""

    def after_step(self, student: nn.Module) -> None:
        """The student has taken a gradient step."""

    def after_batch(self, student: nn.Module) -> None:
        """All passes over a stream mini-batch are done."""
