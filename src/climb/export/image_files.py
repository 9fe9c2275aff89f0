"""IMAGES, as the command line calls them: decoded one after the other, each with its path."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from climb.errors import InputError
from climb.sources import open_source
from climb.sources.folder import load_file
from climb.sources.item import Unusable
from climb.sources.open import STANDARD_INPUT

WORKERS = min(8, os.cpu_count() or 1)
"""Threads that decode."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """One image and where it lies."""

    path: str
    pixels: torch.Tensor
    """uint8 (3, S, S): the middle square of the image."""


def images_of(images: str | Path | Iterable[Path], image_size: int) -> Iterator[Picture]:
    """The images of anything that ends (a folder, tar shards, a video, one file, some files), in a fixed order.

    Those that cannot be decoded are logged and passed over. What cannot be used at all is refused at once.
    """
    source = open_source(images, image_size=image_size, workers=WORKERS)
    if source.endless and source.name != STANDARD_INPUT:
        raise InputError(f"{source.name} never ends; give images that do: a folder, tar shards, a video")
    return (Picture(path=item.where, pixels=item.image) for item in source)


def decode_one(path: str | Path, image_size: int) -> torch.Tensor:
    """The one image in a file, uint8 (3, S, S).

    >>> decode_one("no-such.png", 32)
    Traceback (most recent call last):
    climb.errors.InputError: no-such.png does not exist; give an image
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise InputError(f"{file} {'is a folder' if file.is_dir() else 'does not exist'}; give an image")
    try:
        return load_file(str(file), image_size)
    except Unusable as error:
        raise InputError(f"{file} cannot be read as an image: {error.reason} ({error.detail})") from error
