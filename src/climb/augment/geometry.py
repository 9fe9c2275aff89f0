"""Crop, mirror and turn every image of a batch in its own way, in one resampling."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def crop(
    images: Tensor, box: Tensor, flip: Tensor, vertical_flip: Tensor | None = None, turns: Tensor | None = None
) -> Tensor:
    """Stretch a crop of each image to the size of the image.

    Bilinear interpolation inside the box; pixels outside it have no influence. A crop is never larger than its image,
    so no anti-aliasing filter is needed. Without matrix products, TF32 and autocast change nothing.

    Args:
        images: float32 ``(n, 3, H, W)``.
        box: ``(n, 4)``: top, left, height and width in whole pixels.
        flip: bool ``(n,)``: mirror the crop left to right.
        vertical_flip: bool ``(n,)``: mirror it top to bottom. Given together with ``turns``.
        turns: int64 ``(n,)``: after the flips, rotate it by so many times 90 degrees, counter-clockwise.

    >>> image = torch.arange(4.0).expand(1, 3, 4, 4)
    >>> crop(image, torch.tensor([[0.0, 1.0, 4.0, 2.0]]), torch.tensor([True]))[0, 0, 0]
    tensor([2.0000, 1.7500, 1.2500, 1.0000])
    """
    height, width = images.shape[-2:]
    tops, lefts, heights, widths = box[:, :, None].unbind(1)
    rows = torch.arange(height, device=images.device) + 0.5
    columns = torch.arange(width, device=images.device) + 0.5
    if vertical_flip is None or turns is None:
        columns = torch.where(flip[:, None], width - columns, columns)
        y = _inside(tops, heights, rows / height)[:, :, None]  # (n, H, 1)
        x = _inside(lefts, widths, columns / width)[:, None, :]  # (n, 1, W)
    else:
        down, right = rows[:, None] / height, columns[None, :] / width
        # A turn by 90 degrees swaps the axes and mirrors one of them, a turn by 180 degrees mirrors both.
        odd = (turns % 2 == 1)[:, None, None]
        down, right = torch.where(odd, right, down), torch.where(odd, down, right)  # (n, H, W)
        down = torch.where((vertical_flip ^ (turns >= 2))[:, None, None], 1 - down, down)
        right = torch.where((flip ^ (turns == 1) ^ (turns == 2))[:, None, None], 1 - right, right)
        y = _inside(tops[:, :, None], heights[:, :, None], down)
        x = _inside(lefts[:, :, None], widths[:, :, None], right)
    # grid_sample expects -1 and 1 at the outer edges of the first and the last pixel.
    x, y = (2 * x + 1) / width - 1, (2 * y + 1) / height - 1
    grid = torch.stack((x.expand(-1, height, width), y.expand(-1, height, width)), dim=-1)
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _inside(start: Tensor, length: Tensor, fraction: Tensor) -> Tensor:
    """Pixel coordinates at ``fraction`` of the box, kept between the centres of its first and last pixel."""
    return start + (fraction * length - 0.5).clamp(min=0.0).minimum(length - 1)
