"""One image file to one uint8 array."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from climb.datasets.rgb import to_rgb, turn_of
from climb.datasets.squares import Square

EXTENSIONS = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".avif", ".jp2"}
)
"""What counts as an image file, compared in lower case."""
FORMATS = ("JPEG", "PNG", "BMP", "DIB", "WEBP", "GIF", "TIFF", "PPM", "AVIF", "JPEG2000", "TGA", "PCX")
"""What is decoded, whatever a file is called. Pillow knows more: it would start Ghostscript for a PostScript file, and
decode an icon before its true size is known."""


@cache
def formats() -> tuple[str, ...]:
    """Those of `FORMATS` that this Pillow knows: AVIF is not in every build."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def decode(path: Path, image_size: int, square: Square) -> npt.NDArray[np.uint8]:
    """The image as RGB uint8 (3, image_size, image_size).

    The EXIF orientation is applied, of an animation the first frame counts, colours are those of `to_rgb`. ``square``
    makes a square of it (bilinear, antialiased as PIL does).
    """
    with Image.open(path, formats=formats()) as opened:
        opened.load()
        image = to_rgb(opened, turn_of(opened))
    return np.ascontiguousarray(np.asarray(square(image, image_size)).transpose(2, 0, 1))
