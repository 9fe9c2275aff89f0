"""A small convolutional encoder, for machines without an accelerator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from climb.nets.initialise import initialised


class MicroNet(nn.Module):
    """Four 3x3 convolutions with batch norm and ReLU, the first two halving the image, then a mean.

    Images ``(n, 3, H, W)``, normalised, in; features ``(n, feature_dim)`` out. Made for 16 to 64 pixels.
    """

    feature_dim = 128
    """Length of a feature vector."""

    def __init__(self) -> None:
        super().__init__()
        # Halving twice at once keeps a step cheap on a CPU; going on at that size is what tells textures apart.
        self.stages = nn.Sequential(
            _stage(3, 16, stride=2),
            _stage(16, 32, stride=2),
            _stage(32, 64, stride=1),
            _stage(64, self.feature_dim, stride=1),
        )

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.stages(images).mean(dim=(2, 3))
        return features


def _stage(inputs: int, outputs: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


def micronet(*, generator: torch.Generator) -> MicroNet:
    """A MicroNet with weights drawn from ``generator``.

    >>> micronet(generator=torch.Generator().manual_seed(0))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 128])
    """
    return initialised(MicroNet, generator)
