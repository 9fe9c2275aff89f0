"""What decoding an image takes, known before it is taken. Measured on images of 25 million pixels."""

from __future__ import annotations

from typing import Any

from PIL import Image

from climb.datasets.rgb import Turn, is_rgb

_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
"""Bytes of a pixel in Pillow's memory; 4 for every other mode, also for RGB."""
_WEBP, _AVIF, _JPEG2000_BAND = 16.5, 20.0, 6.2
"""Bytes a pixel that these decoders take: AVIF 13.3 with 8 bits a colour, JPEG 2000 for each band beside the result."""

# Tags of a TIFF file.
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _ORIENTATION, _SAMPLES, _ROWS_A_STRIP = 256, 257, 258, 259, 274, 277, 278
_TILE_WIDTH, _TILE_HEIGHT = 322, 323


def to_load(image: Image.Image, pixels: int) -> float:
    """Bytes that loading an opened image takes at its peak: what the decoder keeps, and the result.

    ``pixels`` is their number before `Image.draft` asked for fewer.

    >>> to_load(Image.new("RGB", (10, 10)), 100)
    400.0
    """
    if image.format in ("JPEG", "MPO"):  # the second is several JPEGs in one file
        # One with several scans, as progressive ones have, keeps every coefficient of every band until the last.
        return _stored(image) + 2.0 * len(image.getbands()) * pixels
    if image.format == "WEBP":
        return _WEBP * pixels
    if image.format == "AVIF":
        return _AVIF * pixels
    if image.format == "JPEG2000":
        return _stored(image) + _JPEG2000_BAND * len(image.getbands()) * pixels
    if image.format == "PPM" and _codec(image) != "raw":  # numbers that are not bytes are all read before any is stored
        return _stored(image) + 6.0 * pixels
    return _stored(image) + (_of_tiff(image) if image.format == "TIFF" else 0.0)


def to_convert(image: Image.Image, turn: Turn) -> float:
    """Bytes that a loaded image and its upright RGB copy take; none is made of one that is all that already.

    >>> to_convert(Image.new("RGB", (10, 10)), None), to_convert(Image.new("L", (10, 10)), None)
    (400.0, 500.0)
    """
    return _stored(image) + (0.0 if turn is None and is_rgb(image) else 4.0 * image.width * image.height)


def _codec(image: Any) -> str:
    return str(image.tile[0][0])


def _stored(image: Image.Image) -> float:
    return float(image.width * image.height * _STORED.get(image.mode, 4))


def _of_tiff(image: Any) -> float:
    """A compressed one is unpacked a strip or a tile at a time, and one may be all of it, or larger. One that is to be
    turned is copied."""
    tags = image.tag_v2
    copy = _stored(image) if tags.get(_ORIENTATION, 1) != 1 else 0.0
    if tags.get(_COMPRESSION, 1) == 1:
        return copy
    if _TILE_WIDTH in tags and _TILE_HEIGHT in tags:
        part = int(tags[_TILE_WIDTH]) * int(tags[_TILE_HEIGHT])
    else:
        part = int(tags[_WIDTH]) * min(int(tags[_HEIGHT]), int(tags.get(_ROWS_A_STRIP, tags[_HEIGHT])))
    bits = int(tags.get(_SAMPLES, 1)) * int(max(tags.get(_BITS, (1,))))
    return copy + part * max(4.0, bits / 8)
