"""Patches of images: how they are cut, encoded and augmented."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from climb.augment import Augment, Parameters, Policy
from climb.augment.parameters import interpret, uniform
from climb.errors import InputError

AT_ONCE = 512
"""Patches per forward without training."""

CROPPED = Policy(crop_scale=(0.3, 1.0), flip=0.0, blur=0.2)
"""Augmentation of a patch in its first view, with SimCLR's colours."""

WHOLE = replace(CROPPED, crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0))
"""Augmentation in its second view: the same without a crop."""


@dataclass(frozen=True, kw_only=True)
class Patching:
    """How an image becomes patches: resized, then cut by a sliding square.

    >>> Patching()(torch.zeros(2, 3, 32, 32)).shape  # 16 patches of 60 pixels from each image
    torch.Size([32, 3, 60, 60])
    """

    image: int = 120
    """Side that images are resized to, in pixels."""
    patch: int = 60
    """Side of a patch."""
    stride: int = 20
    """Pixels between two patches."""

    @classmethod
    def fitting(cls, side: int) -> Patching:
        """PCMC's patches. Images smaller than CIFAR's are only enlarged twice, and cut into nine patches.

        >>> Patching.fitting(32) == Patching(), Patching.fitting(16)
        (True, Patching(image=32, patch=16, stride=8))
        """
        return cls() if side >= 32 else cls(image=2 * side, patch=side, stride=side // 2)

    def __post_init__(self) -> None:
        if not (0 < self.patch <= self.image and self.stride > 0):
            raise InputError(f"patching needs 0 < patch <= image and stride > 0; given {self}")

    @property
    def count(self) -> int:
        """Patches of one image."""
        return ((self.image - self.patch) // self.stride + 1) ** 2

    def __call__(self, images: Tensor) -> Tensor:
        """Images (n, 3, H, W), uint8 or float, to patches (n * count, 3, p, p) of that type, image by image."""
        size = (self.image, self.image)
        if tuple(images.shape[-2:]) != size:
            resized = F.interpolate(images.float(), size=size, mode="bilinear", antialias=True, align_corners=False)
            images = resized if images.is_floating_point() else resized.round_().clamp_(0, 255).to(images.dtype)
        cut = images.unfold(2, self.patch, self.stride).unfold(3, self.patch, self.stride)  # (n, 3, rows, cols, p, p)
        return cut.permute(0, 2, 3, 1, 4, 5).reshape(-1, images.shape[1], self.patch, self.patch)


class PatchEncoder(nn.Module):
    """Normalised images (n, 3, H, W) to the mean (n, feature_dim) of the features of their patches.

    For features, not for training: images go through a few at a time, or their patches would fill the device.
    """

    not_exported: ClassVar[str] = "pcmc's encoder cuts images into patches, which has no place in these files"
    """Reason for refusing an export."""
    feature_dim: int
    """Length of a feature vector."""

    def __init__(self, backbone: nn.Module, patching: Patching, *, feature_dim: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.patching = patching
        self.feature_dim = feature_dim

    @property
    def stored_encoder(self) -> nn.Module:
        """The encoder of what the memory stores: patches."""
        return self.backbone

    def forward(self, images: Tensor) -> Tensor:
        count = self.patching.count
        parts = torch.split(images, max(1, AT_ONCE // count))
        features = torch.cat([self.backbone(self.patching(part)).float() for part in parts])
        return features.view(-1, count, self.feature_dim).mean(1)


class PatchViews(Augment):
    """Makes two views of a batch of patches: one cropped, and one whole."""

    def numbers(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The random numbers of the first views of ``images`` (n, 3, p, p), then those of the second."""
        return torch.cat([uniform(len(images), generator, self.device) for _ in range(2)], dim=1)

    def views(self, images: Tensor, numbers: Tensor) -> Tensor:
        """The views (2, n, 3, p, p) of uint8 patches (n, 3, p, p) under ``numbers``."""
        return self.apply(images, two_views((images.shape[2], images.shape[3]), numbers))


def two_views(size: tuple[int, int], numbers: Tensor) -> Parameters:
    """The parameters that follow from ``numbers`` for patches of ``size``: the second views are not cropped."""
    first, second = numbers.chunk(2, dim=1)
    return interpret(CROPPED, size, first).followed_by(interpret(WHOLE, size, second))
