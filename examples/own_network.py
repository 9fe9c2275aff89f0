"""A network of your own: two strided convolutions.

Run it: ``python examples/own_network.py``. From the command line:
``climb run --import examples/own_network.py --backbone two-layers``.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from climb import Climb
from climb.nets import backbone
from climb.nets.network import initialised


class TwoLayers(nn.Module):
    """Maps normalised images (n, 3, H, W) to features (n, 64)."""

    feature_dim = 64

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, self.feature_dim, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(self.feature_dim),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features: the mean over the image."""
        features: torch.Tensor = self.layers(images).relu().mean((2, 3))
        return features


@backbone("two-layers", hidden=64, embedding_dim=64, bottleneck_dim=32)
def two_layers(image_size: int, *, generator: torch.Generator) -> TwoLayers:
    """The same network for every image size, with weights drawn from ``generator``."""
    return initialised(TwoLayers, generator)


def main() -> None:
    """Learn with it for a moment."""
    images = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    model = Climb(capacity=60, replay_batch=8, backbone="two-layers", device="cpu")
    print(f"two-layers: features of shape {model.fit_transform(images).shape}")


if __name__ == "__main__":
    main()
