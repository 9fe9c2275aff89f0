"""Audit a model: what its features say of hue, brightness, sharpness, orientation, compared with those of its start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from climb.arguments import checked
from climb.errors import InputError
from climb.evaluation.audit import audit
from climb.export.embed import Picture, images_of
from climb.export.model_loader import OpenModel
from climb.export.start import Start, start_of
from climb.runs import Result
from climb.seeds import numpy_generator

MOST = 2000
"""Images of an audit by default. Each encoder encodes them three times."""
FEWEST = 100


@checked()
def audit_model(model: OpenModel, images: str | Path, *, most: int = MOST, seed: int = 0) -> Result:
    """How well the features of a model and of its start predict attributes that are computed from the images.

    Args:
        model: its start must be known: a folder of a run or a learner, or a file of `Climb.save`.
        images: any finite source; labels are not used.
        most: a random sample of so many images is taken from a larger source.
        seed: of the sample, the halves for training and test, the turns and the flips.

    Returns:
        ``attributes`` holds for each attribute the accuracies of encoder, start and most common value in percent, the
        paired ``gain``, and their standard errors.
    """
    if most < FEWEST:
        raise InputError(f"most is {most}; it must be at least {FEWEST}")
    start = start_of(model)
    if not isinstance(start, Start):
        raise InputError(f"{model.path}: {start}. An audit compares a model with its start")
    pixels = _sample(images_of(images, model.saved.image_size, model.pixel_range), most, seed)
    if len(pixels) < FEWEST:
        raise InputError(f"{images} has {len(pixels)} readable images; an audit needs at least {FEWEST}")
    rows = audit({"encoder": model.features, "start": start.features}, torch.stack(pixels), seed=seed)
    attributes: dict[str, dict[str, float | None]] = {}
    for row in rows:
        own = {**row.measured, "gain": row.measured["encoder"] - row.measured["start"], "majority": row.majority}
        attributes[row.name] = {"test_images": row.test_images}
        for name, each in own.items():
            attributes[row.name] |= {f"{name}_accuracy": each.accuracy, f"{name}_error": each.standard_error}
    return Result(images=len(pixels), seed=seed, start=start.name, attributes=attributes)


def _sample(pictures: Iterator[Picture], most: int, seed: int) -> list[torch.Tensor]:
    """A uniform sample of a source of unknown length (Vitter's algorithm R)."""
    generator, kept = numpy_generator(seed, "audit/sample"), list[torch.Tensor]()
    for number, picture in enumerate(pictures):
        if number < most:
            kept.append(picture.pixels)
        elif (place := int(generator.integers(number + 1))) < most:
            kept[place] = picture.pixels
    return kept
