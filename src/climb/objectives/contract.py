"""What an objective promises: a loss of an encoded training batch."""

from __future__ import annotations

import torch
from torch import nn

from climb.nets import Encoded


class Objective(nn.Module):
    """The objective socket: what do we learn? Its parameters, if any, are trained."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        """The scalar loss."""
        raise TypeError(f"{type(self).__name__} must define forward(encoded)")
