"""Pictures of any mode to RGB, without further copies of a large one on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image

STRIP_PIXELS = 2**20
"""Larger pictures are converted a strip of so many pixels at a time."""

Turn = Image.Transpose | None

_HIGH_DEPTH = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ON_ITS_SIDE = frozenset(_TURNS[orientation] for orientation in (5, 6, 7, 8))


def to_rgb(image: Image.Image, turn: Turn = None) -> Image.Image:
    """A picture of any mode as RGB, turned.

    Transparency is laid on white, 16-bit greys keep their upper 8 bits, floating point counts from 0 to 1 or, if it
    goes beyond, to 255.

    >>> to_rgb(Image.new("I;16", (1, 1), 77 * 256 + 3)).getpixel((0, 0))
    (77, 77, 77)
    """
    if turn is None and is_rgb(image):
        return image
    image.load()
    convert = _conversion(image)
    if image.width * image.height <= STRIP_PIXELS:
        return convert(image if turn is None else image.transpose(turn))
    whole = Image.new("RGB", upright_size(image, turn))
    step = max(1, STRIP_PIXELS // whole.width)
    for top in range(0, whole.height, step):
        strip = image.crop(_before(image, turn, top, min(top + step, whole.height)))
        whole.paste(convert(strip if turn is None else strip.transpose(turn)), (0, top))
    return whole


def is_rgb(image: Image.Image) -> bool:
    """Whether a picture is RGB as it is: one of this mode may have a transparent colour."""
    return image.mode == "RGB" and not image.has_transparency_data


def turn_of(image: Image.Image) -> Turn:
    """What its EXIF data ask to be done to a loaded picture, to stand it upright."""
    return _TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))


def upright_size(image: Image.Image, turn: Turn) -> tuple[int, int]:
    """Width and height after turning."""
    return (image.height, image.width) if turn in _ON_ITS_SIDE else image.size


def _before(image: Image.Image, turn: Turn, start: int, end: int) -> tuple[int, int, int, int]:
    """Where in the picture as it lies the rows ``start`` to ``end`` of the turned one are."""
    turned = Image.Transpose
    if turn in (turned.ROTATE_180, turned.FLIP_TOP_BOTTOM):
        return 0, image.height - end, image.width, image.height - start
    if turn in (turned.ROTATE_90, turned.TRANSVERSE):
        return image.width - end, 0, image.width - start, image.height
    if turn in (turned.ROTATE_270, turned.TRANSPOSE):
        return start, 0, end, image.height
    return 0, start, image.width, end


def _conversion(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """What makes RGB of parts of this picture."""
    if image.mode in _HIGH_DEPTH:
        # Pillow's own conversion clips at 255 and would turn a 16-bit image white.
        return lambda part: _grey(np.asarray(part).astype(np.int64) >> 8)
    if image.mode == "F":
        factor = 255 if _brightest(image) <= 1 else 1
        return lambda part: _grey(_numbers(part) * factor)
    return _plain


def _plain(part: Image.Image) -> Image.Image:
    if part.has_transparency_data:
        white = Image.new("RGBA", part.size, "white")
        return Image.alpha_composite(white, part.convert("RGBA")).convert("RGB")
    return part if part.mode == "RGB" else part.convert("RGB")


def _brightest(image: Image.Image) -> float:
    """The largest number anywhere in the picture: the parts are to agree on what white is."""
    step = max(1, STRIP_PIXELS // image.width)
    strips = (image.crop((0, row, image.width, min(row + step, image.height))) for row in range(0, image.height, step))
    return max(float(_numbers(strip).max()) for strip in strips)


def _numbers(part: Image.Image) -> npt.NDArray[np.float64]:
    return np.nan_to_num(np.asarray(part, dtype=np.float64))


def _grey(values: npt.NDArray[Any]) -> Image.Image:
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).convert("RGB")
