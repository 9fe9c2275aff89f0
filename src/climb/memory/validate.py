"""Checks of the arguments of memories. Errors state the violated inequality."""

from __future__ import annotations

import torch

from climb.arguments import shown
from climb.errors import ClimbError, InputError


def check_sizes(capacity: int, stm_centroids: int, ltm_centroids: int, images_per_centroid: int) -> None:
    """Reject sizes with which pruning the short-term memory cannot keep the bound."""
    if min(stm_centroids, ltm_centroids) < 1:
        given = f"given {stm_centroids} and {ltm_centroids}"
        raise InputError(f"a memory needs stm_centroids >= 1 and ltm_centroids >= 1; {given}")
    if images_per_centroid < 2:
        raise InputError(f"images_per_centroid must be at least 2: M >= 2; given {images_per_centroid}")
    needed = ltm_centroids * images_per_centroid + stm_centroids
    if needed > capacity:
        raise InputError(
            "ltm_centroids * images_per_centroid + stm_centroids must not exceed capacity (K * M + L <= N): "
            f"{ltm_centroids} * {images_per_centroid} + {stm_centroids} = {needed} > {capacity}"
        )


def check_finite(finite: bool, name: str) -> None:
    """Reject embeddings or features with NaN or infinity."""
    if not finite:
        raise ClimbError(f"the memory got {name} with NaN or infinity: training has diverged; lower the learning rate")


def check_images(images: torch.Tensor, image_shape: tuple[int, ...]) -> None:
    """Reject anything but uint8 images of the memory's shape."""
    if not isinstance(images, torch.Tensor) or images.layout != torch.strided or images.is_meta:
        raise InputError(f"the memory stores dense uint8 tensors; given {shown(images)}")
    if images.dtype != torch.uint8 or tuple(images.shape[1:]) != tuple(image_shape):
        raise InputError(
            f"the memory stores uint8 images of shape (n, {', '.join(map(str, image_shape))}); "
            f"given {images.dtype} of shape {tuple(images.shape)}"
        )


def checked_embeddings(
    embeddings: torch.Tensor | None, shape: tuple[int, int], device: torch.device | str
) -> torch.Tensor:
    """Embeddings of that shape (n, d) as float32 on ``device``, detached; rejects another shape."""
    if not isinstance(embeddings, torch.Tensor) or tuple(embeddings.shape) != shape:
        given = tuple(embeddings.shape) if isinstance(embeddings, torch.Tensor) else shown(embeddings)
        raise InputError(f"embeddings must have shape {shape}; given {given}")
    return embeddings.detach().to(device, torch.float32)
