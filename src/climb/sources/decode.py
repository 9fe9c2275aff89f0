"""Bytes of any image file to RGB at the model's size, or word of why not."""

from __future__ import annotations

import contextlib
import io
import os
import stat

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from climb.datasets.decode import formats
from climb.datasets.rgb import to_rgb, turn_of
from climb.datasets.squares import middle
from climb.sources.item import CORRUPT, NOT_AN_IMAGE, TOO_LARGE, TRUNCATED, UNREADABLE, Unusable
from climb.sources.memory_needed import to_convert, to_load

MOST_PIXELS = 89_478_485
"""Images with more are passed over unread (Pillow's own bound)."""
MOST_MEMORY = 600 * 10**6
"""Images that take more bytes at any moment of their decoding (see `climb.sources.memory_needed`) are passed over."""
MOST_BYTES = 256 * 2**20
"""Files with more are passed over unread."""


def read_file(path: str) -> bytes:
    """The bytes of an image file."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # a pipe would keep its reader waiting, a device never ends
            raise Unusable(UNREADABLE, "not an ordinary file")
        if status.st_size > MOST_BYTES:
            raise Unusable(TOO_LARGE, f"{status.st_size:,} bytes; at most {MOST_BYTES:,} are read")
        with open(path, "rb") as handle:
            return handle.read(MOST_BYTES)
    except (OSError, ValueError) as error:  # also a name that no file can have
        raise Unusable(UNREADABLE, str(error)) from error


def decode(data: bytes, image_size: int) -> torch.Tensor:
    """The image as uint8 (3, image_size, image_size), see `square`; `Unusable` if it is damaged or gigantic."""
    return square(picture(data, 2 * image_size), image_size)


def picture(data: bytes, at_least: int) -> Image.Image:
    """The image as RGB, upright; of an animation the first frame. `Unusable` if it is damaged or gigantic.

    A large JPEG is decoded at a fraction of its size, with ``at_least`` so many pixels a side. Beside the file's own
    bytes this takes `MOST_MEMORY` at most, and up to 50 MB for the strip that is converted: measured, 362 MB for an RGB
    PNG of 89 million pixels, 622 MB for an RGBA PNG of 75 million, 635 MB for a floating-point TIFF of 75 million.
    """
    try:
        with Image.open(io.BytesIO(data), formats=formats()) as image:
            width, height = image.size
            if width * height > MOST_PIXELS:
                raise Unusable(TOO_LARGE, f"{width} x {height} pixels; at most {MOST_PIXELS:,} are decoded")
            image.draft(None, (at_least, at_least))  # None keeps the mode
            _check(image, max(to_load(image, width * height), to_convert(image, None)))
            image.load()
            turn = None
            with contextlib.suppress(Exception):  # damaged metadata do not spoil the picture
                turn = turn_of(image)
            _check(image, to_convert(image, turn))
            return to_rgb(image, turn)
    except Unusable:
        raise
    except UnidentifiedImageError:
        raise Unusable(NOT_AN_IMAGE, "no decoder knows this format" if data else "the file is empty") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError) as error:
        raise Unusable(TOO_LARGE, str(error)) from error
    except Exception as error:  # decoders fail in many ways on damaged files; each means that this one is
        text = f"{type(error).__name__}: {error}"
        raise Unusable(TRUNCATED if "truncated" in text.lower() else CORRUPT, text) from error


def _check(image: Image.Image, needed: float) -> None:
    if needed > MOST_MEMORY:
        raise Unusable(
            TOO_LARGE,
            f"{image.width} x {image.height} pixels of {image.format} ({image.mode}) take {needed / 1e6:,.0f} MB of "
            f"memory; at most {MOST_MEMORY / 1e6:,.0f} MB are taken",
        )


def square(image: Image.Image, image_size: int) -> torch.Tensor:
    """The middle of a picture in any mode, as RGB uint8 (3, image_size, image_size); `Unusable` if it is empty.

    Colours are those of `climb.datasets.rgb.to_rgb`.
    """
    if 0 in image.size:  # an array may be empty; resizing would make a black image of it
        raise Unusable(NOT_AN_IMAGE, f"{image.width} x {image.height} pixels")
    pixels = np.asarray(middle(to_rgb(image), image_size))
    return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
