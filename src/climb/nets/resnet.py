"""Residual networks without a classifier. Parameters have torchvision's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from climb.errors import InputError
from climb.nets.build import backbone
from climb.nets.fit import fitted
from climb.nets.network import Pretrained, initialised

SMALL_IMAGE = 64
"""Largest side in pixels that gets the small stem."""


class BasicBlock(nn.Module):
    """The block of ResNet-18 and 34: two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(inputs, width, 3, stride)
        self.conv2, self.bn2 = _convolution(width, width, 3)
        self.downsample = _shortcut(inputs, width, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.relu(self.bn1(self.conv1(x)))
        branch = self.bn2(self.conv2(branch))
        out: Tensor = self.relu(branch + (x if self.downsample is None else self.downsample(x)))
        return out


class BottleneckBlock(nn.Module):
    """The block of ResNet-50: 1x1, 3x3 and 1x1 convolutions and a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(inputs, width, 1)
        self.conv2, self.bn2 = _convolution(width, width, 3, stride)
        self.conv3, self.bn3 = _convolution(width, width * self.expansion, 1)
        self.downsample = _shortcut(inputs, width * self.expansion, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.relu(self.bn1(self.conv1(x)))
        branch = self.relu(self.bn2(self.conv2(branch)))
        branch = self.bn3(self.conv3(branch))
        out: Tensor = self.relu(branch + (x if self.downsample is None else self.downsample(x)))
        return out


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    return None if stride == 1 and inputs == outputs else nn.Sequential(*_convolution(inputs, outputs, 1, stride))


class Stem(nn.Conv2d):
    """The first convolution. On a GPU it pads the 3 channels of an image to 8 with zeros.

    The result is the same. Tensor cores process channels in groups of 8; with 3, cuDNN picks a slower kernel.
    """

    def forward(self, images: Tensor) -> Tensor:
        if images.device.type != "cuda":
            return super().forward(images)
        fill = (0, 0, 0, 0, 0, -self.in_channels % 8)
        images, weight = functional.pad(images, fill), functional.pad(self.weight, fill)
        return functional.conv2d(images, weight, None, self.stride, self.padding)


class ResNet(nn.Module):
    """Maps normalised images ``(n, 3, H, W)`` to globally averaged features ``(n, feature_dim)``.

    Args:
        block: the kind of residual block.
        depths: blocks per stage.
        small_stem: True starts with a 3x3 convolution of stride 1. False starts with ImageNet's 7x7 convolution of
            stride 2 and a max-pooling.
    """

    def __init__(self, block: type[BasicBlock | BottleneckBlock], depths: Sequence[int], *, small_stem: bool) -> None:
        super().__init__()
        self.conv1 = Stem(3, 64, 3, 1, 1, bias=False) if small_stem else Stem(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small_stem else nn.MaxPool2d(3, 2, 1)
        channels = 64
        stages = []
        for stage, depth in enumerate(depths):
            blocks = []
            for index in range(depth):
                blocks.append(block(channels, 64 * 2**stage, 2 if stage > 0 and index == 0 else 1))
                channels = 64 * 2**stage * block.expansion
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.feature_dim = channels
        """Length of a feature vector."""

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return torch.mean(x, dim=(2, 3))


def check_stem(state: Mapping[str, Tensor], encoder: nn.Module) -> Mapping[str, Tensor]:
    """The same tensors. A checkpoint with the stem of another image size is refused."""
    stem, expected = state.get("conv1.weight"), encoder.state_dict()["conv1.weight"]
    if stem is not None and stem.shape != expected.shape and stem.shape[-1] in (3, 7):
        raise InputError(
            f"the checkpoint does not fit this network: conv1.weight is {tuple(stem.shape)}, expected "
            f"{tuple(expected.shape)}. Checkpoints with the 7x7 stem fit networks built for images above {SMALL_IMAGE} "
            "pixels, those with the 3x3 stem networks for smaller ones; give another --image-size"
        )
    return state


_TORCHVISION = {"pretrained": Pretrained, "adapt": check_stem}
"""torchvision's files were trained with ImageNet's statistics."""


@backbone("resnet18", **_TORCHVISION)
def resnet18(image_size: int, *, generator: torch.Generator) -> ResNet:
    """ResNet-18 for square images of ``image_size`` pixels, 512 features, weights from ``generator``.

    >>> encoder = resnet18(32, generator=torch.Generator().manual_seed(0))
    >>> encoder(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 512])
    """
    return _residual(BasicBlock, (2, 2, 2, 2), image_size, generator)


@backbone("resnet34", **_TORCHVISION)
def resnet34(image_size: int, *, generator: torch.Generator) -> ResNet:
    """ResNet-34 for square images of ``image_size`` pixels, 512 features, weights from ``generator``."""
    return _residual(BasicBlock, (3, 4, 6, 3), image_size, generator)


@backbone("resnet50", **_TORCHVISION)
def resnet50(image_size: int, *, generator: torch.Generator) -> ResNet:
    """ResNet-50 for square images of ``image_size`` pixels, 2048 features, weights from ``generator``."""
    return _residual(BottleneckBlock, (3, 4, 6, 3), image_size, generator)


def _residual(
    block: type[BasicBlock | BottleneckBlock], depths: Sequence[int], image_size: int, generator: torch.Generator
) -> ResNet:
    encoder = initialised(lambda: ResNet(block, depths, small_stem=image_size <= SMALL_IMAGE), generator)
    for part in encoder.modules():
        if isinstance(part, BasicBlock | BottleneckBlock):
            # Each block starts as its shortcut alone, which stabilises the first steps.
            nn.init.zeros_(part.bn2.weight if isinstance(part, BasicBlock) else part.bn3.weight)
    return encoder


def load_torchvision(encoder: ResNet, state: Mapping[str, Tensor]) -> None:
    """Load a torchvision checkpoint of the same architecture into ``encoder``. The classifier is ignored.

    >>> encoder = resnet18(224, generator=torch.Generator().manual_seed(0))
    >>> load_torchvision(encoder, {**encoder.state_dict(), "fc.bias": torch.zeros(1000)})
    """
    encoder.load_state_dict(fitted(state, encoder, source="the checkpoint", adapt=check_stem))
