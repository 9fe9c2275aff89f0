"""Residual networks without a classifier, under torchvision's parameter names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from climb.errors import InputError
from climb.nets.initialise import initialised

SMALL_IMAGE = 64
"""Images up to this side, in pixels, get the small stem."""


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: the block of ResNet-18 and 34."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)
        self.relu = nn.ReLU(inplace=True)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """The batch norm that closes the residual branch."""
        return self.bn2

    def forward(self, x: Tensor) -> Tensor:
        branch = self.relu(self.bn1(self.conv1(x)))
        branch = self.bn2(self.conv2(branch))
        out: Tensor = self.relu(branch + (x if self.downsample is None else self.downsample(x)))
        return out


class BottleneckBlock(nn.Module):
    """1x1, 3x3, 1x1 convolutions beside a shortcut: the block of ResNet-50."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.downsample = _shortcut(inputs, width * self.expansion, stride)
        self.relu = nn.ReLU(inplace=True)

    @property
    def last_norm(self) -> nn.BatchNorm2d:
        """The batch norm that closes the residual branch."""
        return self.bn3

    def forward(self, x: Tensor) -> Tensor:
        branch = self.relu(self.bn1(self.conv1(x)))
        branch = self.relu(self.bn2(self.conv2(branch)))
        branch = self.bn3(self.conv3(branch))
        out: Tensor = self.relu(branch + (x if self.downsample is None else self.downsample(x)))
        return out


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class Stem(nn.Conv2d):
    """The first convolution. On a GPU the 3 channels of an image are filled up to 8 with zeros.

    Matrix units take channels by eights; with 3, a slower kind of convolution is chosen, and the result is the same.
    """

    def forward(self, images: Tensor) -> Tensor:
        if images.device.type != "cuda":
            return super().forward(images)
        fill = (0, 0, 0, 0, 0, -self.in_channels % 8)
        images, weight = functional.pad(images, fill), functional.pad(self.weight, fill)
        return functional.conv2d(images, weight, None, self.stride, self.padding)


class ResNet(nn.Module):
    """Images ``(n, 3, H, W)``, normalised, in; globally averaged features ``(n, feature_dim)`` out.

    With ``small_stem`` the first convolution is 3x3 with stride 1 and there is no max-pooling, else it is the
    7x7 with stride 2, followed by max-pooling, of ImageNet.
    """

    feature_dim: int
    """Length of a feature vector."""

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

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        features: Tensor = x.mean(dim=(2, 3))
        return features


def resnet18(image_size: int, *, generator: torch.Generator) -> ResNet:
    """ResNet-18 for square images of ``image_size`` pixels, 512 features, weights from ``generator``.

    >>> encoder = resnet18(32, generator=torch.Generator().manual_seed(0))
    >>> encoder(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 512])
    """
    return _residual(BasicBlock, (2, 2, 2, 2), image_size, generator)


def resnet34(image_size: int, *, generator: torch.Generator) -> ResNet:
    """ResNet-34 for square images of ``image_size`` pixels, 512 features, weights from ``generator``."""
    return _residual(BasicBlock, (3, 4, 6, 3), image_size, generator)


def resnet50(image_size: int, *, generator: torch.Generator) -> ResNet:
    """ResNet-50 for square images of ``image_size`` pixels, 2048 features, weights from ``generator``."""
    return _residual(BottleneckBlock, (3, 4, 6, 3), image_size, generator)


def _residual(
    block: type[BasicBlock | BottleneckBlock],
    depths: Sequence[int],
    image_size: int,
    generator: torch.Generator,
) -> ResNet:
    build: Callable[[], ResNet] = partial(ResNet, block, depths, small_stem=image_size <= SMALL_IMAGE)
    encoder = initialised(build, generator)
    for part in encoder.modules():
        if isinstance(part, BasicBlock | BottleneckBlock):
            # Every block then starts as its shortcut alone, which steadies the first steps.
            nn.init.zeros_(part.last_norm.weight)
    return encoder


def load_torchvision(encoder: ResNet, state: Mapping[str, Tensor]) -> None:
    """Load a torchvision checkpoint of the same architecture into ``encoder``, without its classifier.

    >>> encoder = resnet18(224, generator=torch.Generator().manual_seed(0))
    >>> load_torchvision(encoder, {**encoder.state_dict(), "fc.bias": torch.zeros(1000)})
    """
    wanted = encoder.state_dict()
    given = {name: value for name, value in state.items() if not name.startswith("fc.")}
    # Checkpoints written before batch norms counted their batches lack the counter; torch fills it in.
    missing = sorted(name for name in wanted.keys() - given.keys() if not name.endswith("num_batches_tracked"))
    unexpected = sorted(given.keys() - wanted.keys())
    misshapen = [
        f"{name} is {tuple(given[name].shape)}, expected {tuple(value.shape)}"
        for name, value in wanted.items()
        if name in given and given[name].shape != value.shape
    ]
    faults = [f"missing {name}" for name in missing] + [f"unexpected {name}" for name in unexpected] + misshapen
    if faults:
        more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
        stem = (
            f". Checkpoints with the 7x7 stem fit networks built for images above {SMALL_IMAGE} pixels"
            if "conv1.weight" in given and given["conv1.weight"].shape != wanted["conv1.weight"].shape
            else ""
        )
        raise InputError(f"the checkpoint does not fit this network: {'; '.join(faults[:3])}{more}{stem}")
    encoder.load_state_dict(given)
