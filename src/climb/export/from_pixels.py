"""An encoder that is handed pixels and normalises them itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FromPixels(nn.Module):
    """Images ``(n, 3, S, S)``, uint8 in 0 to 255 or floats in 0 to 1, to the encoder's features ``(n, f)``."""

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: nn.Module, *, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.encoder = encoder
        # Not persistent: the weights' file holds the encoder's own names and nothing else.
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if not images.is_floating_point():
            images = images.float() / 255
        features: Tensor = self.encoder((images - self.mean) / self.std)
        return features
