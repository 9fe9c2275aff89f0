"""Colour changes and blur, with an amount of its own for every image. Images are float32 in 0 to 1."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def luminance(images: Tensor) -> Tensor:
    """The gray values ``(n, 1, H, W)`` of images ``(n, 3, H, W)``, by the weights of ITU-R 601."""
    red, green, blue = images[:, :, None].unbind(1)  # (n, 1, H, W) each
    return (0.299 * red).add_(0.587 * green).add_(0.114 * blue)


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Multiply images ``(n, 3, H, W)`` by ``factor`` ``(n,)``."""
    return (images * factor[:, None, None, None]).clamp_(0.0, 1.0)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Scale the difference of images ``(n, 3, H, W)`` from their mean gray by ``factor`` ``(n,)``."""
    gray = luminance(images)
    mean = gray.mean(dim=(2, 3), keepdim=True)
    return _blend(mean.expand_as(gray).contiguous(), images, factor)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Scale the difference of images ``(n, 3, H, W)`` from their gray values by ``factor`` ``(n,)``."""
    return _blend(luminance(images), images, factor)


_NO_CHROMA = 1e-37
"""Less than the chroma of any pixel that is not gray; its inverse is finite."""


def adjust_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Shift the hue of images ``(n, 3, H, W)`` by ``turns`` ``(n,)`` around the colour circle.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> adjust_hue(red, torch.tensor([1 / 3])).flatten().round(decimals=4)
    tensor([0., 1., 0.])
    """
    red, green, blue = images[:, :, None].unbind(1)  # (n, 1, H, W) each
    value = red.maximum(green).maximum(blue)
    chroma = value - red.minimum(green).minimum(blue)
    # A gray pixel has no hue. All three differences are 0 there, so any divisor gives 0.
    scale = chroma.clamp(min=_NO_CHROMA).reciprocal_()
    sixths = ((red - green).mul_(scale)).add_(4)
    sixths = _chosen(value.clone().eq_(green), ((blue - red).mul_(scale)).add_(2), sixths)
    sixths = _chosen(value.clone().eq_(red), (green - blue).mul_(scale), sixths)
    sixths += 6 * turns[:, None, None, None]
    sixths.sub_((sixths / 6).floor_(), alpha=6)  # between -6 and 12, this is the remainder by 6, to the bit
    # Along the circle each channel is a trapezium: red peaks at 0, green at 2, blue at 4.
    missing = (2 - (sixths - 3).abs_(), (sixths - 2).abs_().sub_(1), (sixths - 4).abs_().sub_(1))
    return torch.cat([value - part.clamp_(0.0, 1.0).mul_(chroma) for part in missing], dim=1)


def to_gray(images: Tensor, gray: Tensor) -> Tensor:
    """Convert those of the images ``(n, 3, H, W)`` to grayscale for which ``gray`` ``(n,)`` is true."""
    return _chosen(gray[:, None, None, None].to(images.dtype), luminance(images), images)


def _blend(other: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    return torch.lerp(other, images, factor[:, None, None, None]).clamp_(0.0, 1.0)


def _chosen(condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """``yes`` where the condition is 1.0, ``no`` where it is 0.0, to the bit."""
    # On a CPU, `torch.where` is ten times slower: it branches at each pixel.
    return torch.lerp(no, yes, condition)


_NO_BLUR = 1e-3
"""A standard deviation in pixels that makes every weight exactly 0 except the central one."""


def blur(images: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Gaussian blur of images ``(n, 3, H, W)`` by ``sigma`` ``(n,)`` pixels in a ``kernel`` x ``kernel`` window.

    Separable, with reflected borders. A sigma of 0 leaves an image unchanged.
    """
    reach = kernel // 2
    offsets = torch.arange(-reach, reach + 1, device=images.device)
    weights = (-0.5 * (offsets / sigma.clamp(min=_NO_BLUR)[:, None]).square()).exp()
    weights = weights / weights.sum(dim=1, keepdim=True)
    padded = functional.pad(images, (reach, reach, reach, reach), mode="reflect")
    return _along(_along(padded, weights, dim=2), weights, dim=3)


def _along(images: Tensor, weights: Tensor, dim: int) -> Tensor:
    """Weighted sum of shifted images along one axis."""
    # Not a convolution, which might run in TF32 or bfloat16.
    kernel = weights.shape[1]
    length = images.shape[dim] - kernel + 1
    out = torch.zeros_like(images.narrow(dim, 0, length))
    for shift, weight in enumerate(weights.unbind(1)):
        out = torch.addcmul(out, images.narrow(dim, shift, length), weight[:, None, None, None])
    return out
