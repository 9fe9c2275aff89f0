"""Features of a frozen encoder, and the checks that all probes make of features and labels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from climb.engine import Precision
from climb.engine.inference import inference
from climb.errors import ClimbError, InputError
from climb.precision import reuse_memory


def batch_size(image_size: int) -> int:
    """Number of images of ``image_size`` pixels to encode at a time, for about the same memory at any size.

    >>> batch_size(32), batch_size(224)
    (1024, 167)
    """
    return max(32, min(1024, 2**23 // image_size**2))


CACHED_PIXELS = 2**18
"""Pixels that a CPU encodes at a time, so that intermediate results stay in its cache."""


def extract_features(
    encoder: nn.Module,
    images: Tensor,
    prepare: Callable[[Tensor], Tensor],
    *,
    encode: Callable[[Tensor], Tensor] | None = None,
    batch_size: int = 1024,
    device: torch.device | str,
    precision: Precision = "float32",
) -> Tensor:
    """The encoder's features of images without augmentation: float32 (n, f) on ``device``, without gradient.

    Parameters, running statistics and training modes of the encoder do not change. Features are not normalised; the
    probes normalise them.

    Args:
        encoder: a module on ``device``.
        images: uint8 (n, 3, H, W) on any device, also memory-mapped. They are moved batch by batch.
        prepare: converts a uint8 batch to the encoder's input, normalised floats.
        encode: the encoder's forward if it is another function, such as a compiled one.
        batch_size: most images encoded at a time; a CPU takes fewer. Features do not depend on it.
        device: where features are computed.
        precision: of the forward passes.

    >>> encoder = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> images = torch.full((5, 3, 4, 4), 51, dtype=torch.uint8)
    >>> extract_features(encoder, images, lambda batch: batch / 255, device="cpu")[0]
    tensor([0.2000, 0.2000, 0.2000])
    """
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.uint8:
        raise InputError(f"images must be uint8 (n, 3, H, W), not {images.dtype} {tuple(images.shape)}.")
    if len(images) == 0:
        raise InputError("there are no images; at least one is needed to extract features.")
    if batch_size < 1:
        raise InputError(f"batch_size is {batch_size}; it must be at least 1.")
    device = torch.device(device)
    if device.type == "cpu":
        batch_size = min(batch_size, max(8, CACHED_PIXELS // (images.shape[2] * images.shape[3])))
        reuse_memory()
    features: Tensor | None = None
    with inference(encoder, device, precision):
        for start in range(0, len(images), batch_size):
            batch = images[start : start + batch_size].to(device)
            # A partial batch has a shape of its own, which is not worth compiling.
            forward = encode if encode is not None and len(batch) == batch_size else encoder
            rows = forward(prepare(batch))
            if rows.ndim != 2 or len(rows) != len(batch):
                returned = f"for {len(batch)} images it returned {tuple(rows.shape)}"
                raise InputError(f"the encoder must return features (n, f); {returned}.")
            if features is None:
                features = torch.empty(len(images), rows.shape[1], dtype=torch.float32, device=device)
            features[start : start + len(batch)] = rows
    assert features is not None
    return features


def check_labelled(name: str, features: Tensor, labels: Tensor) -> None:
    """Reject features (n, f) and labels (n,) that no probe can use. ``name`` identifies them in messages.

    >>> check_labelled("test", torch.zeros(3, 8), torch.zeros(2, dtype=torch.int64))
    Traceback (most recent call last):
    climb.errors.InputError: test: 3 rows of features but 2 labels; give one label per row.
    """
    if features.ndim != 2 or features.shape[1] == 0 or not features.is_floating_point():
        shape = tuple(features.shape)
        raise InputError(f"{name}: features must be floating point (n, f), not {features.dtype} {shape}.")
    if labels.ndim != 1 or labels.dtype != torch.int64:
        raise InputError(f"{name}: labels must be int64 (n,), not {labels.dtype} {tuple(labels.shape)}.")
    if len(features) != len(labels):
        raise InputError(f"{name}: {len(features)} rows of features but {len(labels)} labels; give one label per row.")
    if len(features) == 0:
        raise InputError(f"{name}: no rows; a probe needs at least one.")
    if features.device != labels.device:
        place = str(features.device)
        raise InputError(f"{name}: features are on {place} but labels on {labels.device}; type labels.to({place!r}).")
    if not bool(torch.isfinite(features).all()):
        broken = int((~torch.isfinite(features).all(dim=1)).sum())
        diverged = f"{name}: {broken} of {len(features)} rows of features are not finite. The encoder has diverged"
        raise ClimbError(f"{diverged}: lower the learning rate, or evaluate an earlier checkpoint.")


def check_label_range(name: str, labels: Tensor, classes: int) -> None:
    """Reject labels (n,) outside 0 .. classes - 1."""
    low, high = (int(bound) for bound in torch.aminmax(labels))
    if low < 0 or high >= classes:
        allowed = f"with {classes} classes, 0 to {classes - 1} is allowed"
        raise InputError(f"{name}: labels run from {low} to {high}; {allowed}.")


def check_pair(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, name: str = "test") -> None:
    """Reject training features (n, f) and other features (m, f), called ``name``, that do not match each other."""
    check_labelled("train", train, train_labels)
    check_labelled(name, test, test_labels)
    check_label_range("train", train_labels, int(train_labels.max()) + 1)
    if train.shape[1] != test.shape[1]:
        raise InputError(f"train features have {train.shape[1]} columns but {name} features {test.shape[1]}.")
    if train.device != test.device:
        raise InputError(f"train features are on {train.device} but {name} features on {test.device}; move one of them")
