"""Any Python iterable of images."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

from climb.errors import InputError
from climb.sources.at_hand import pending_bytes
from climb.sources.decode import square
from climb.sources.folder import find_file
from climb.sources.item import CORRUPT, TRUNCATED, Claim, Pending, Read, Unusable, refuse

_ALLOWED = (
    "images must be PIL pictures, paths, bytes, or uint8 arrays (H, W), (H, W, 3) or (3, H, W), one at a time, without "
    "labels"
)


def read_iterable(images: Iterable[Any], *, image_size: int) -> Read:
    """Pictures (PIL), uint8 arrays or tensors (H, W), (H, W, 3) or (3, H, W), paths, or the bytes of image files.

    Paths are known as files are. The others have no identity: what is given is learned.
    """

    def read(claim: Claim, stop: Event) -> Iterator[Pending]:
        for number, given in enumerate(images):
            if isinstance(given, str | Path):
                yield from find_file(str(given), image_size, claim)
            else:
                yield _pending(given, image_size, f"image {number}")
            if stop.is_set():  # asked after giving: what was taken from the iterable is not lost
                return

    return read


def _pending(given: Any, image_size: int, where: str) -> Pending:
    if isinstance(given, bytes):
        return pending_bytes(given, image_size, where=where, identity=None)
    try:
        image = to_image(given, image_size)  # at once: its owner may close or overwrite it when asked for the next
    except Unusable as error:
        return refuse(where, None, error)
    return Pending(identity=None, where=where, load=lambda: image)


def to_image(given: Any, image_size: int) -> torch.Tensor:
    """uint8 (3, S, S) from a picture, an array or a tensor."""
    if isinstance(given, Image.Image):
        return square(_upright(given), image_size)
    try:
        array = given.detach().cpu().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
    except ValueError:  # parts of unlike shapes: an image with its label, say
        raise InputError(f"{_ALLOWED}; given {type(given).__name__}, of which numpy makes no array") from None
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.dtype != np.uint8 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise InputError(f"{_ALLOWED}; given {type(given).__name__} of {array.dtype}, shape {array.shape}")
    return square(Image.fromarray(np.ascontiguousarray(array)), image_size)


def _upright(given: Image.Image) -> Image.Image:
    try:
        given.load()  # a picture that was opened has not been decoded yet
    except Exception as error:  # decoders fail in many ways on damaged files; each means that this one is
        text = f"{type(error).__name__}: {error}"
        raise Unusable(TRUNCATED if "truncated" in text.lower() else CORRUPT, text) from error
    with contextlib.suppress(Exception):  # damaged metadata do not spoil the picture
        return ImageOps.exif_transpose(given)
    return given
