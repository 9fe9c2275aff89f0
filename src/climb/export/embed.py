"""Images to features, batch by batch, and the images of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from climb.arguments import check_value, checked
from climb.errors import ClimbError, InputError
from climb.evaluation.features import batch_size
from climb.export.model_loader import OpenModel
from climb.images.convert import PixelRange
from climb.images.decode import ImageError
from climb.images.tensors import Decoder
from climb.precision import usable_cores
from climb.sources import open_source
from climb.sources.folder import STANDARD_INPUT


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedded:
    """Paths and features of some images."""

    paths: list[str]
    features: NDArray[np.float32]
    """(n, f): the output of the encoder, not normalised; or unit vectors to compare."""


@checked()
def embed(model: OpenModel, pictures: Iterable[Picture], *, comparable: bool = False) -> Iterator[Embedded]:
    """The features of pictures, in their order, batch by batch, in bounded memory.

    With ``comparable``, unit vectors whose dot products are the similarities of `climb.export.search`.

    Raises:
        ClimbError: features are not finite.
    """
    remaining = iter(pictures)
    size = batch_size(model.saved.image_size)
    while batch := list(islice(remaining, size)):
        for picture in batch:
            check_value("each picture", picture, Picture)
        features = model.features(torch.stack([picture.pixels for picture in batch]))
        if not bool(torch.isfinite(features).all()):
            raise ClimbError(f"the features of {model.file} are not finite: its training diverged")
        rows = model.comparable(features.numpy()) if comparable else features.numpy()
        yield Embedded(paths=[picture.path for picture in batch], features=rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """One image and its path."""

    path: str
    pixels: torch.Tensor
    """uint8 (3, S, S): the central square of the image."""


@checked(image_size=8)
def images_of(
    images: str | Path | Iterable[Path], image_size: int, pixel_range: PixelRange | None = None
) -> Iterator[Picture]:
    """The images of a finite source (folder, tar shards, video, one or several files), in a fixed order.

    ``pixel_range`` is what becomes black and white in images of more than 8 bits; None for the range of each image.
    Images that cannot be decoded are logged and skipped. An unusable source raises an error before the first image.
    """
    source = open_source(images, image_size=image_size, workers=min(8, usable_cores()), pixel_range=pixel_range)
    if source.endless and source.name != STANDARD_INPUT:
        raise InputError(f"{source.name} is endless; give a finite source: a folder, tar shards, a video")
    return (Picture(path=item.where, pixels=item.image) for item in source)


def decode_one(path: str | Path, image_size: int, pixel_range: PixelRange | None = None) -> torch.Tensor:
    """Decode an image file to uint8 (3, S, S).

    >>> decode_one("no-such.png", 32)
    Traceback (most recent call last):
    climb.errors.InputError: no-such.png does not exist; give an image
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{file} {'is a folder' if file.is_dir() else 'does not exist'}; give an image")
    try:
        return Decoder(image_size=image_size, pixel_range=pixel_range).file(str(file))
    except ImageError as error:
        raise InputError(f"{file} cannot be read as an image: {error.reason} ({error.detail})") from error
