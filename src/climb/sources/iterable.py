"""Any Python iterable of images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from PIL import Image

from climb.errors import InputError
from climb.sources.decode import decode, square
from climb.sources.folder import find_file
from climb.sources.item import Claim, Pending, Read


def read_iterable(images: Iterable[Any], *, image_size: int) -> Read:
    """Pictures (PIL), uint8 arrays or tensors (H, W), (H, W, 3) or (3, H, W), paths, or the bytes of image files.

    Paths are known as files are. The others have no identity: what is given is learned.
    """

    def read(claim: Claim, stop: Event) -> Iterator[Pending]:
        for number, given in enumerate(images):
            if isinstance(given, str | Path):
                yield from find_file(str(given), image_size, claim)
            else:
                yield Pending(identity=None, where=f"image {number}", load=partial(to_image, given, image_size))
            if stop.is_set():  # asked after giving: what was taken from the iterable is not lost
                return

    return read


def to_image(given: Any, image_size: int) -> torch.Tensor:
    """uint8 (3, S, S) from a picture, an array, a tensor, or bytes."""
    if isinstance(given, bytes):
        return decode(given, image_size)
    if isinstance(given, Image.Image):
        return square(given, image_size)
    array = given.detach().cpu().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise InputError(
            "images must be PIL pictures, paths, bytes, or uint8 arrays (H, W), (H, W, 3) or (3, H, W), one at a "
            f"time; given {type(given).__name__} of {array.dtype}, shape {array.shape}"
        )
    return square(Image.fromarray(np.ascontiguousarray(array)), image_size)
