"""Gaussian blur, with a width of its own for every image."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_NO_BLUR = 1e-3
"""A standard deviation, in pixels, at which every weight but the central one is exactly 0."""


def blur(images: Tensor, sigma: Tensor, kernel: int) -> Tensor:
    """Images ``(n, 3, H, W)``, float32, blurred by ``sigma`` ``(n,)`` pixels with a ``kernel`` x ``kernel`` window.

    Separable; the border is reflected. A sigma of 0 gives the image back.
    """
    reach = kernel // 2
    offsets = torch.arange(-reach, reach + 1, device=images.device)
    weights = (-0.5 * (offsets / sigma.clamp(min=_NO_BLUR)[:, None]).square()).exp()
    weights = weights / weights.sum(dim=1, keepdim=True)
    padded = functional.pad(images, (reach, reach, reach, reach), mode="reflect")
    return _along(_along(padded, weights, dim=2), weights, dim=3)


def _along(images: Tensor, weights: Tensor, dim: int) -> Tensor:
    """The weighted sum of shifted images: float32 everywhere, where a convolution might be TF32 or bfloat16."""
    kernel = weights.shape[1]
    length = images.shape[dim] - kernel + 1
    out = torch.zeros_like(images.narrow(dim, 0, length))
    for shift, weight in enumerate(weights.unbind(1)):
        out = torch.addcmul(out, images.narrow(dim, shift, length), weight[:, None, None, None])
    return out
