"""One image file to one uint8 array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff"})
"""What counts as an image file, compared in lower case."""

_HIGH_DEPTH = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})


def decode(path: Path, image_size: int) -> npt.NDArray[np.uint8]:
    """The image as RGB uint8 (3, image_size, image_size).

    The EXIF orientation is applied, of an animation the first frame counts, colours are those of `to_rgb`. The image
    is squashed to a square (bilinear, antialiased as PIL does); its aspect ratio is not kept.
    """
    with Image.open(path) as opened:
        image = to_rgb(ImageOps.exif_transpose(opened))
    if image.size != (image_size, image_size):
        image = image.resize((image_size, image_size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def to_rgb(image: Image.Image) -> Image.Image:
    """A picture of any mode as RGB.

    Transparency is laid on white, 16-bit greys keep their upper 8 bits, floating point counts from 0 to 1 or, if it
    goes beyond, to 255.

    >>> to_rgb(Image.new("I;16", (1, 1), 77 * 256 + 3)).getpixel((0, 0))
    (77, 77, 77)
    """
    if image.mode in _HIGH_DEPTH:
        # Pillow's own conversion clips at 255 and would turn a 16-bit image white.
        return _grey(np.asarray(image).astype(np.int64) >> 8)
    if image.mode == "F":
        values = np.nan_to_num(np.asarray(image, dtype=np.float64))
        return _grey(values * (255 if values.max() <= 1 else 1))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _grey(values: npt.NDArray[Any]) -> Image.Image:
    return Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).convert("RGB")
