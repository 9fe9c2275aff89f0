"""Every image's own crop, stretched back to full size and perhaps mirrored, in one resampling."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def crop(images: Tensor, box: Tensor, flip: Tensor) -> Tensor:
    """Images ``(n, 3, H, W)``, float32, to their crops ``box`` ``(n, 4)``, stretched to ``(n, 3, H, W)``.

    ``box`` is top, left, height, width in whole pixels; where ``flip`` ``(n,)`` is true the crop is mirrored
    left to right. Bilinear; nothing from outside the box is seen. A crop is never larger than its image, so no
    filter against aliasing is needed. No matrix product is involved, so TF32 and autocast change nothing.

    >>> image = torch.arange(4.0).expand(1, 3, 4, 4)
    >>> crop(image, torch.tensor([[0.0, 1.0, 4.0, 2.0]]), torch.tensor([True]))[0, 0, 0]
    tensor([2.0000, 1.7500, 1.2500, 1.0000])
    """
    height, width = images.shape[-2:]
    tops, lefts, heights, widths = box[:, :, None].unbind(1)
    rows = torch.arange(height, device=images.device) + 0.5
    columns = torch.arange(width, device=images.device) + 0.5
    columns = torch.where(flip[:, None], width - columns, columns)
    y = _inside(tops, heights, rows / height)  # (n, H)
    x = _inside(lefts, widths, columns / width)  # (n, W)
    # grid_sample wants -1 and 1 at the outer edges of the first and the last pixel.
    grid = torch.stack(
        (
            ((2 * x + 1) / width - 1)[:, None, :].expand(-1, height, -1),
            ((2 * y + 1) / height - 1)[:, :, None].expand(-1, -1, width),
        ),
        dim=-1,
    )
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _inside(start: Tensor, length: Tensor, fraction: Tensor) -> Tensor:
    """Pixel coordinates at ``fraction`` of the box, kept between the centres of its first and last pixel."""
    return start + (fraction * length - 0.5).clamp(min=0.0).minimum(length - 1)
