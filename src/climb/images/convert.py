"""Convert images: any mode to upright RGB, strip by strip, without a second copy of a large image; RGB to a size."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image

from climb.errors import InputError

STRIP_PIXELS = 2**20
"""Larger images are converted in strips of this many pixels."""

_EXIF = b"Exif\0\0"
_DIRECTORY_BYTES = 2**26
Turn = Image.Transpose | None
"""The transposition that makes an image upright; None for an image that is upright."""

_TURN_OF_ORIENTATION = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SWAP_SIDES = frozenset(_TURN_OF_ORIENTATION[orientation] for orientation in (5, 6, 7, 8))


def to_rgb(image: Image.Image, turn: Turn = None, pixel_range: PixelRange | None = None) -> Image.Image:
    """An image of any mode as RGB, turned upright.

    Transparent pixels become white. ``pixel_range`` is what becomes black and white in images of more than 8 bits
    (`is_deep`); by default the image's own `value_range`.

    >>> to_rgb(Image.new("I;16", (1, 1), 7500), pixel_range=(7000, 8000)).getpixel((0, 0))
    (128, 128, 128)
    """
    if turn is None and is_rgb(image):
        return image
    image.load()
    convert = _converter(image, pixel_range)
    if image.width * image.height <= STRIP_PIXELS:
        return convert(image if turn is None else image.transpose(turn))
    whole = Image.new("RGB", (image.height, image.width) if turn in _SWAP_SIDES else image.size)
    step = max(1, STRIP_PIXELS // whole.width)
    for top in range(0, whole.height, step):
        strip = image.crop(_box_before_turn(image, turn, top, min(top + step, whole.height)))
        whole.paste(convert(strip if turn is None else strip.transpose(turn)), (0, top))
    return whole


def is_rgb(image: Image.Image) -> bool:
    """Whether an image is opaque RGB. An image of mode RGB may still have a transparent colour."""
    return image.mode == "RGB" and not image.has_transparency_data


def _box_before_turn(image: Image.Image, turn: Turn, start: int, end: int) -> tuple[int, int, int, int]:
    """The box of the stored image that becomes rows ``start`` to ``end`` of the upright one."""
    transpose = Image.Transpose
    if turn in (transpose.ROTATE_180, transpose.FLIP_TOP_BOTTOM):
        return 0, image.height - end, image.width, image.height - start
    if turn in (transpose.ROTATE_90, transpose.TRANSVERSE):
        return image.width - end, 0, image.width - start, image.height
    if turn in (transpose.ROTATE_270, transpose.TRANSPOSE):
        return start, 0, end, image.height
    return 0, start, image.width, end


def _converter(image: Image.Image, pixel_range: PixelRange | None) -> Callable[[Image.Image], Image.Image]:
    """A function that converts strips of ``image`` to RGB."""
    if not is_deep(image):
        return _standard_mode
    low, high = pixel_range or value_range(image)

    def scale(strip: Image.Image) -> Image.Image:
        values = np.nan_to_num(np.asarray(strip, dtype=np.float64), nan=low, posinf=high, neginf=low)
        values = (np.clip(values, low, high) - low) * (255 / (high - low)) + 0.5
        return Image.fromarray(values.astype(np.uint8)).convert("RGB")

    return scale


def _standard_mode(strip: Image.Image) -> Image.Image:
    if strip.has_transparency_data:
        white = Image.new("RGBA", strip.size, "white")
        return Image.alpha_composite(white, strip.convert("RGBA")).convert("RGB")
    return strip if strip.mode == "RGB" else strip.convert("RGB")


# -- images of more than 8 bits a channel ------------------------------------------------------------------------------

PixelRange = tuple[float, float]
"""The values that become black and white."""
_LARGEST = (1.0, 255.0, 65_535.0, 2.0**31)


def as_pixel_range(pixel_range: Sequence[float] | None) -> PixelRange | None:
    """A range of pixel values, checked.

    >>> as_pixel_range([7000, 8000])
    (7000.0, 8000.0)
    >>> as_pixel_range((8000, 7000))
    Traceback (most recent call last):
    climb.errors.InputError: pixel_range must be two finite numbers, the smaller one first; given (8000, 7000)
    """
    if pixel_range is None:
        return None
    with contextlib.suppress(TypeError, ValueError):
        low, high = map(float, pixel_range)
        if -np.inf < low < high < np.inf:
            return low, high
    given = " ".join(repr(pixel_range).split())[:60]
    raise InputError(f"pixel_range must be two finite numbers, the smaller one first; given {given}")


def is_deep(image: Image.Image) -> bool:
    """Whether an image has more than 8 bits a channel: 16 or 32 bit grey, or floating-point numbers."""
    return image.mode == "F" or image.mode.startswith("I")


def value_range(image: Image.Image) -> PixelRange:
    """The least and the largest finite value of an image.

    An image of one value gets the range of the smallest common type that holds the value, so that it keeps a shade.

    >>> value_range(Image.new("F", (2, 2), 0.5)), value_range(Image.new("F", (2, 2), 300))
    ((0.0, 1.0), (0.0, 65535.0))
    """
    low, high = np.inf, -np.inf
    step = max(1, STRIP_PIXELS // image.width)
    for top in range(0, image.height, step):
        values = np.asarray(image.crop((0, top, image.width, min(top + step, image.height))))
        if image.mode == "F":
            values = values[np.isfinite(values)]
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
    if low < high:
        return low, high
    least = {"F": 0, "I": 1}.get(image.mode, 2)
    return 0.0, next((most for most in _LARGEST[least:] if high <= most), high)


# -- EXIF data ---------------------------------------------------------------------------------------------------------


def exif_turn(image: Image.Image) -> Turn:
    """The turn that the EXIF orientation of a loaded image asks for. Damaged and immense EXIF data are ignored."""
    with contextlib.suppress(Exception):  # the pixels are intact even if the metadata are not
        if has_small_directory(_exif_bytes(image)):
            return _TURN_OF_ORIENTATION.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    return None


def has_small_directory(exif: bytes) -> bool:
    """Whether EXIF data can be read in a few megabytes. Pillow reads all entries, and each may be as long as the data.

    >>> head = b"MM\\0*\\0\\0\\0\\x08"
    >>> has_small_directory(head + b"\\0\\x0a"), has_small_directory(head + b"\\xff\\xff" + bytes(10_000))
    (True, False)
    """
    directory = exif.removeprefix(_EXIF).removeprefix(_EXIF)
    if not directory:
        return True
    order: Literal["little", "big"] = "little" if directory.startswith(b"II") else "big"
    start = int.from_bytes(directory[4:8], order)
    count = directory[start : start + 2]
    return len(count) == 2 and int.from_bytes(count, order) * len(directory) <= _DIRECTORY_BYTES


def _exif_bytes(image: Image.Image) -> bytes:
    """EXIF data from where Pillow takes them; b"" for a TIFF, which is a directory itself."""
    exif = image.info.get("exif")
    profile = image.info.get("Raw profile type exif") if exif is None else None
    return bytes.fromhex("".join(profile.split("\n")[3:])) if profile else exif or b""


# -- fitted to a size --------------------------------------------------------------------------------------------------

Fit = Callable[[Image.Image, int], Image.Image]
"""Takes an RGB image and a side in pixels."""


def center_square(image: Image.Image, side: int) -> Image.Image:
    """Resize the shorter side to ``side`` and crop the longer one. Users' own images are squared in this way.

    >>> center_square(Image.new("RGB", (60, 20)), 10).size
    (10, 10)
    """
    width, height = image.size
    if (width, height) == (side, side):
        return image
    least = min(width, height)
    left, top = (width - least) / 2, (height - least) / 2
    # Crop before resizing: a strip of 1 x 100,000 pixels must not become one of 224 x 22,400,000.
    box = (left, top, left + least, top + least)
    return image.resize((side, side), Image.Resampling.BILINEAR, box=box)


def squash(image: Image.Image, side: int) -> Image.Image:
    """Resize both sides to ``side``, whatever the aspect ratio. The paper squares ImageNet's images in this way.

    >>> squash(Image.new("RGB", (60, 20)), 10).size
    (10, 10)
    """
    return image if image.size == (side, side) else image.resize((side, side), Image.Resampling.BILINEAR)


def shrink(image: Image.Image, side: int) -> Image.Image:
    """Resize a larger image so that its longer side is ``side``. Pages show users' images in this way.

    >>> shrink(Image.new("RGB", (60, 20)), 30).size, shrink(Image.new("RGB", (6, 2)), 30).size
    ((30, 10), (6, 2))
    """
    if max(image.size) > side:
        image.thumbnail((side, side))
    return image


FITS: dict[str, Fit] = {fit.__name__: fit for fit in (center_square, squash, shrink)}
"""The ways of fitting, by name."""


def to_array(image: Image.Image) -> npt.NDArray[np.uint8]:
    """An RGB image as a contiguous uint8 array (3, H, W)."""
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))
