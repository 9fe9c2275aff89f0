"""What a dataset is: uint8 images and labels, a training and a test part, decoded once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch


@dataclass(frozen=True, kw_only=True)
class Split:
    """One part of a dataset."""

    images: torch.Tensor
    """uint8 (n, 3, H, W); may be memory-mapped from the cache."""
    labels: torch.Tensor
    """int64 (n,), on the CPU, in 0 .. classes - 1. For probes and reports only: no learner sees them."""

    def __len__(self) -> int:
        return int(self.images.shape[0])


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A training and a test part with the same classes."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    """Class names; label i is ``classes[i]``."""
    mean: tuple[float, float, float]
    """Per-channel mean of the training images on the 0..1 scale."""
    std: tuple[float, float, float]

    @property
    def image_size(self) -> int:
        """Side of the square images, in pixels."""
        return int(self.train.images.shape[-1])

    def to(self, device: torch.device | str) -> Dataset:
        """The same dataset with its images on ``device``; the labels stay on the CPU."""
        train = replace(self.train, images=self.train.images.to(device))
        test = replace(self.test, images=self.test.images.to(device))
        return replace(self, train=train, test=test)
