"""Per-channel mean and standard deviation of uint8 images."""

from __future__ import annotations

import torch

Channels = tuple[float, float, float]

_CHUNK = 1024
_LEAST_STD = 1 / 255


def channel_statistics(images: torch.Tensor) -> tuple[Channels, Channels]:
    """Mean and standard deviation of each channel on the 0..1 scale, exact whatever the number of images.

    ``images``: uint8 (n, 3, H, W), n at least 1; read in pieces, so it may be larger than memory.

    >>> mean, std = channel_statistics(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 4, 4))
    >>> mean, std
    ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    """
    counts = torch.zeros(3, 256, dtype=torch.int64)
    for start in range(0, len(images), _CHUNK):
        chunk = images[start : start + _CHUNK]
        for channel in range(3):
            counts[channel] += torch.bincount(chunk[:, channel].flatten(), minlength=256).cpu()
    levels = torch.arange(256, dtype=torch.float64) / 255
    share = counts / counts.sum(dim=1, keepdim=True).double()
    mean = (share * levels).sum(dim=1)
    variance = (share * (levels - mean[:, None]) ** 2).sum(dim=1)
    # A constant channel has no spread; dividing by one grey level keeps normalised images finite.
    std = variance.sqrt().clamp(min=_LEAST_STD)
    return _three(mean), _three(std)


def _three(values: torch.Tensor) -> Channels:
    red, green, blue = values.tolist()
    return red, green, blue
