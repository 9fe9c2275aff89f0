"""What features still say of an image: its hue, brightness, sharpness, orientation and handedness.

Views teach an encoder to ignore what they change. The audit measures what that cost: the attributes are computed from
the images themselves, and a ridge probe predicts them from features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from climb.evaluation.measured import Measured
from climb.evaluation.tuned_ridge import tuned_ridge_predictions
from climb.seeds import torch_generator

HUES = 8
COLOURLESS = 8.0
"""Mean difference between the largest and the smallest channel, of 255, below which an image has no hue."""
LUMA = (0.299, 0.587, 0.114)
LAPLACE = ((0.0, 1.0, 0.0), (1.0, -4.0, 1.0), (0.0, 1.0, 0.0))
FEWEST = 20
"""Images with an attribute, below which it is not measured."""

Encode = Callable[[Tensor], Tensor]
"""uint8 images (n, 3, S, S) to features (n, f)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Attribute:
    """How well features predict one attribute."""

    name: str
    test_images: int
    majority: Measured
    """Accuracy of always answering the most common value."""
    measured: Mapping[str, Measured]
    """Accuracy of the ridge probe, by encoder."""


def audit(encoders: Mapping[str, Encode], images: Tensor, *, seed: int) -> list[Attribute]:
    """Accuracy of a ridge probe of each attribute on the features of each encoder.

    A random half of the images trains the probes, the other half tests them. For the rotation, every image is turned by
    0, 90, 180 or 270 degrees; for mirroring, every second one is flipped. An attribute that fewer than 20 images have,
    such as the hue of grey images, or that is the same for all, is left out.

    Args:
        encoders: functions from images to features, by name.
        images: uint8 (n, 3, S, S), not augmented.
        seed: of the halves, the turns and the flips.

    >>> images = torch.randint(0, 256, (80, 3, 8, 8), generator=torch.Generator().manual_seed(0)).byte()
    >>> images += torch.arange(80).remainder(2).mul(-100).byte().view(-1, 1, 1, 1) // 2
    >>> rows = audit({"mean": lambda batch: batch.float().mean(dim=(2, 3))}, images, seed=0)
    >>> [row.name for row in rows]
    ['hue', 'brightness', 'sharpness', 'rotation', 'mirror']
    """
    generator = torch_generator(seed, "audit")
    order = torch.randperm(len(images), generator=generator)
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    turns = torch.randint(0, 4, (len(images),), generator=generator)
    flips = torch.randint(0, 2, (len(images),), generator=generator)
    as_they_are = {
        "hue": dominant_hue(images),
        "brightness": _quartile(brightness(images), train),
        "sharpness": _quartile(sharpness(images), train),
    }
    found = []
    for shown, labelled in (
        (images, as_they_are),
        (turned(images, turns), {"rotation": turns}),
        (flipped(images, flips), {"mirror": flips}),
    ):
        features = {name: encode(shown).cpu() for name, encode in encoders.items()}
        for name, labels in labelled.items():
            rows, queries = (part[labels[part] >= 0] for part in (train, test))
            if len(rows) >= FEWEST and len(queries) >= FEWEST and len(torch.unique(labels[rows])) > 1:
                found.append(_measure(name, features, labels, rows, queries, seed=seed))
    return found


def _measure(
    name: str, features: Mapping[str, Tensor], labels: Tensor, rows: Tensor, queries: Tensor, *, seed: int
) -> Attribute:
    answers = labels[queries]
    commonest = torch.bincount(labels[rows]).argmax()
    measured = {
        encoder: Measured.of_answers(
            tuned_ridge_predictions(own[rows], labels[rows], own[queries], seed=seed) == answers
        )
        for encoder, own in features.items()
    }
    majority = Measured.of_answers(answers == commonest)
    return Attribute(name=name, test_images=len(queries), majority=majority, measured=measured)


def dominant_hue(images: Tensor) -> Tensor:
    """The hue (n,) with most colour in it, of eight; -1 for an image without colour. Red is 0, green about 3, blue 5.

    >>> pixels = torch.tensor([[255, 0, 0], [0, 0, 255], [90, 90, 90]], dtype=torch.uint8)
    >>> dominant_hue(pixels.view(3, 3, 1, 1)).tolist()
    [0, 5, -1]
    """
    labels = []
    for batch in torch.split(images, 256):
        red, green, blue = batch.float().unbind(dim=1)
        largest, smallest = batch.float().amax(dim=1), batch.float().amin(dim=1)
        chroma = largest - smallest
        safe = chroma.clamp(min=1e-6)
        sixths = torch.where(
            largest == red,
            ((green - blue) / safe) % 6,
            torch.where(largest == green, (blue - red) / safe + 2, (red - green) / safe + 4),
        )
        bins = (sixths / 6 * HUES).round().long() % HUES  # bins are centred, so that red is not cut in two
        weights = torch.zeros(len(batch), HUES).scatter_add_(1, bins.flatten(1), chroma.flatten(1))
        coloured = chroma.flatten(1).mean(dim=1) >= COLOURLESS
        labels.append(torch.where(coloured, weights.argmax(dim=1), -1))
    return torch.cat(labels)


def brightness(images: Tensor) -> Tensor:
    """Mean luma (n,), 0 to 255."""
    return torch.cat([_luma(batch).mean(dim=(1, 2)) for batch in torch.split(images, 256)])


def sharpness(images: Tensor) -> Tensor:
    """Standard deviation (n,) of the luma's Laplacian: high for images with fine detail."""
    kernel = torch.tensor(LAPLACE).view(1, 1, 3, 3)
    edges = (functional.conv2d(_luma(batch).unsqueeze(1), kernel) for batch in torch.split(images, 256))
    return torch.cat([each.flatten(1).std(dim=1) for each in edges])


def _luma(images: Tensor) -> Tensor:
    weights = torch.tensor(LUMA).view(1, 3, 1, 1)
    return (images.float() * weights).sum(dim=1)


def _quartile(values: Tensor, reference: Tensor) -> Tensor:
    """The quartile (n,) of each value among those of the rows ``reference``."""
    bounds = torch.quantile(values[reference], torch.tensor([0.25, 0.5, 0.75]))
    return torch.bucketize(values, bounds)


def turned(images: Tensor, turns: Tensor) -> Tensor:
    """Images turned by ``turns`` (n,) quarters, counterclockwise."""
    quarters = [torch.rot90(images, number, dims=(2, 3)) for number in range(4)]
    result = images.clone()
    for number, quarter in enumerate(quarters):
        result[turns == number] = quarter[turns == number]
    return result


def flipped(images: Tensor, flips: Tensor) -> Tensor:
    """Images mirrored left to right where ``flips`` (n,) is 1."""
    return torch.where(flips.bool().view(-1, 1, 1, 1), images.flip(dims=(3,)), images)
