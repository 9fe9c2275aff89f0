"""A small convolutional encoder for CPUs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from climb.nets.build import backbone
from climb.nets.network import initialised


class MicroNet(nn.Module):
    """Four 3x3 convolutions with batch norm and ReLU, then a global mean. The first two have stride 2.

    Maps normalised images ``(n, 3, H, W)`` to features ``(n, feature_dim)``. Suits images of 16 to 64 pixels.
    """

    feature_dim = 128
    """Length of a feature vector."""

    def __init__(self) -> None:
        super().__init__()
        # Two early strides keep a step cheap on a CPU. The later layers keep the resolution, to tell textures apart.
        self.stages = nn.Sequential(
            _stage(3, 16, stride=2),
            _stage(16, 32, stride=2),
            _stage(32, 64, stride=1),
            _stage(64, self.feature_dim, stride=1),
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.mean(self.stages(images), dim=(2, 3))


def _stage(inputs: int, outputs: int, *, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


@backbone("micro", hidden=128, embedding_dim=128, bottleneck_dim=64)
def micronet(image_size: int = 32, *, generator: torch.Generator) -> MicroNet:
    """MicroNet, for images of 16 to 64 pixels on a CPU, 128 features, weights from ``generator``.

    It is the same for every ``image_size``.

    >>> micronet(generator=torch.Generator().manual_seed(0))(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 128])
    """
    return initialised(MicroNet, generator)
