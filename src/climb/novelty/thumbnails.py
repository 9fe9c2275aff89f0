"""Small grey thumbnails, and the correlation of two of them after the best alignment."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 64
"""Side of a thumbnail."""
COMPARED = 32
"""Side at which two thumbnails are compared. Smaller details differ after compression."""
CROP = 61
"""Side of an aligned crop of a thumbnail: 95 %."""
OFFSETS = (0, 1, 3)
"""Positions of the crop along each side."""
UNLIKE = 0.3
"""Correlation below which no crop makes two images alike."""
FLAT = 4.0
"""Grey levels of contrast below which differences are noise."""


def thumbnails(images: Tensor) -> Tensor:
    """Grey thumbnails, uint8 (n, 64, 64), of uint8 images (n, 3, H, W).

    >>> thumbnails(torch.full((2, 3, 16, 16), 77, dtype=torch.uint8)).unique().tolist()
    [77]
    """
    weights = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    grey = (images.float() * weights).sum(dim=1, keepdim=True)
    small = F.interpolate(grey, size=(SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)
    return small.round_().clamp_(0, 255).to(torch.uint8).squeeze(1)


def correlations(first: Tensor, second: Tensor) -> Tensor:
    """Correlation (n,) of pairs of thumbnails (n, 64, 64), at most 1, with one of them cropped for the best fit.

    >>> image = torch.randint(0, 256, (1, 3, 128, 128), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    >>> same, other = thumbnails(image), thumbnails(image.flip(2))
    >>> round(correlations(same, same).item(), 3), correlations(same, other).item() < 0.5
    (1.0, True)
    """
    plain = [_standard(part.float().unsqueeze(1)) for part in (first, second)]
    whole = (plain[0] * plain[1]).sum(dim=1)
    close = whole > UNLIKE
    best = whole.clone()
    best[close] = _best_crop(first[close], second[close], plain[0][close], plain[1][close], whole[close])
    return best.clamp(max=1)


def _best_crop(first: Tensor, second: Tensor, one: Tensor, other: Tensor, best: Tensor) -> Tensor:
    """The best correlation with a crop of either image; ``one`` and ``other`` are the whole images as `_standard`."""
    for top in OFFSETS:
        for left in OFFSETS:
            for cropped, rows in ((first, other), (second, one)):
                part = cropped[:, top : top + CROP, left : left + CROP]
                best = torch.maximum(best, (_standard(part.float().unsqueeze(1)) * rows).sum(dim=1))
    return best


def _standard(images: Tensor) -> Tensor:
    """Rows of length 1 and mean 0; shorter ones for images without contrast."""
    rows = F.adaptive_avg_pool2d(images, COMPARED).flatten(1)
    rows = rows - rows.mean(dim=1, keepdim=True)
    standard: Tensor = rows / rows.norm(dim=1, keepdim=True).clamp(min=FLAT * COMPARED)
    return standard
