"""Changes of colour, with an amount of its own for every image; images are float32 in 0 to 1."""

from __future__ import annotations

import torch
from torch import Tensor


def luminance(images: Tensor) -> Tensor:
    """Images ``(n, 3, H, W)`` to their gray values ``(n, 1, H, W)``, by the weights of ITU-R 601."""
    red, green, blue = images[:, :, None].unbind(1)  # (n, 1, H, W) each
    return 0.299 * red + 0.587 * green + 0.114 * blue


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Images ``(n, 3, H, W)`` times ``factor`` ``(n,)``."""
    return (images * factor[:, None, None, None]).clamp(0.0, 1.0)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Images ``(n, 3, H, W)`` drawn away from (or, below 1, to) their mean gray by ``factor`` ``(n,)``."""
    return _blend(luminance(images).mean(dim=(2, 3), keepdim=True), images, factor)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Images ``(n, 3, H, W)`` drawn away from (or, below 1, to) their own gray by ``factor`` ``(n,)``."""
    return _blend(luminance(images), images, factor)


def adjust_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Images ``(n, 3, H, W)`` with their hue moved by ``turns`` ``(n,)`` around the colour circle.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> adjust_hue(red, torch.tensor([1 / 3])).flatten().round(decimals=4)
    tensor([0., 1., 0.])
    """
    red, green, blue = images[:, :, None].unbind(1)  # (n, 1, H, W) each
    value = red.maximum(green).maximum(blue)
    chroma = value - red.minimum(green).minimum(blue)
    # A gray pixel has no hue: all three differences are 0 there, so any divisor will do.
    scale = 1 / chroma.where(chroma > 0, 1.0)
    sixths = torch.where(
        value == red,
        (green - blue) * scale,
        torch.where(value == green, (blue - red) * scale + 2, (red - green) * scale + 4),
    )
    sixths = (sixths + 6 * turns[:, None, None, None]).remainder(6)
    # Along the circle every channel is a trapezium: red full around 0, green around 2, blue around 4.
    share = torch.cat(((sixths - 3).abs() - 1, 2 - (sixths - 2).abs(), 2 - (sixths - 4).abs()), dim=1)
    return value - chroma * (1 - share.clamp(0.0, 1.0))


def to_gray(images: Tensor, gray: Tensor) -> Tensor:
    """Images ``(n, 3, H, W)``, those with ``gray`` ``(n,)`` true without their colours."""
    return torch.where(gray[:, None, None, None], luminance(images), images)


def _blend(other: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(other, images, factor[:, None, None, None]).clamp(0.0, 1.0)
