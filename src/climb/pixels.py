"""Images that callers pass as arrays: checks, one memory layout, one size."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from climb.errors import InputError

Images = NDArray[np.uint8] | torch.Tensor


def as_images(X: Images) -> torch.Tensor:
    """uint8 images (n, 3, H, W) from (n, H, W, 3) or (n, 3, H, W), numpy or torch."""
    if not isinstance(X, np.ndarray | torch.Tensor) or X.ndim != 4 or 3 not in (X.shape[1], X.shape[3]):
        shape = tuple(getattr(X, "shape", ())) or type(X).__name__
        raise InputError(f"images must have shape (n, H, W, 3) or (n, 3, H, W); given {shape}")
    if X.dtype not in (np.uint8, torch.uint8):
        raise InputError(f"images must be uint8, values 0 to 255; given {X.dtype}")
    if len(X) == 0:
        raise InputError(f"no image was given: the shape is {tuple(X.shape)}")
    if 0 in X.shape:
        raise InputError(f"images must have pixels; the shape is {tuple(X.shape)}")
    if isinstance(X, np.ndarray):  # torch needs writable memory
        X = torch.from_numpy(np.ascontiguousarray(X) if X.flags.writeable else np.array(X))
    if X.layout != torch.strided or X.is_meta:
        raise InputError(f"images must be a dense tensor with values; given {X.layout} on {X.device}")
    # One memory layout: another one changes the order of sums, and so the last bits.
    return (X if X.shape[1] == 3 else X.permute(0, 3, 1, 2)).contiguous()


def square_side(images: torch.Tensor) -> int:
    """The side of images (n, 3, H, W), which must be square."""
    height, width = images.shape[-2:]
    if height != width:
        raise InputError(f"images of {height} x {width} pixels are not square; give image_size to have them resized")
    return int(height)


def resized(images: torch.Tensor, side: int) -> torch.Tensor:
    """uint8 images (n, 3, side, side)."""
    if tuple(images.shape[-2:]) == (side, side):
        return images
    scaled = F.interpolate(images.float(), size=(side, side), mode="bilinear", antialias=True, align_corners=False)
    return scaled.round_().clamp_(0, 255).to(torch.uint8)
