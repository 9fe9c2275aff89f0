"""Images in, the features of a frozen encoder out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from climb.engine import Precision
from climb.engine.inference import inference
from climb.errors import InputError


def batch_size(image_size: int) -> int:
    """Images of ``image_size`` pixels that go through an encoder together: about as much memory at any size.

    >>> batch_size(32), batch_size(224)
    (1024, 167)
    """
    return max(32, min(1024, 2**23 // image_size**2))


def extract_features(
    encoder: nn.Module,
    images: torch.Tensor,
    prepare: Callable[[torch.Tensor], torch.Tensor],
    *,
    batch_size: int = 1024,
    device: torch.device | str,
    precision: Precision = "float32",
) -> torch.Tensor:
    """The encoder's features of un-augmented images: float32 (n, f) on ``device``, without gradient.

    ``images`` are uint8 (n, 3, H, W), anywhere, memory-mapped ones included: they travel one batch at a time.
    ``prepare`` turns a uint8 batch into what the encoder takes (normalised floats). The encoder, which must be
    on ``device``, comes back as it was: modes, parameters and running statistics. Features are not normalised;
    the probes do that.

    >>> encoder = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> images = torch.full((5, 3, 4, 4), 51, dtype=torch.uint8)
    >>> extract_features(encoder, images, lambda batch: batch / 255, device="cpu")[0]
    tensor([0.2000, 0.2000, 0.2000])
    """
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.uint8:
        raise InputError(f"images must be uint8 (n, 3, H, W), not {images.dtype} {tuple(images.shape)}.")
    if len(images) == 0:
        raise InputError("no images to extract features from; give at least one.")
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; it must be at least 1.")
    device = torch.device(device)
    features: torch.Tensor | None = None
    with inference(encoder, device, precision):
        for start in range(0, len(images), batch_size):
            batch = images[start : start + batch_size].to(device)
            rows = encoder(prepare(batch))
            if rows.ndim != 2 or len(rows) != len(batch):
                raise InputError(
                    f"the encoder must give (n, f) features; for {len(batch)} images it gave {tuple(rows.shape)}."
                )
            if features is None:
                features = torch.empty(len(images), rows.shape[1], dtype=torch.float32, device=device)
            features[start : start + len(batch)] = rows
    assert features is not None
    return features
