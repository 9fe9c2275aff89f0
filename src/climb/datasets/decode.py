"""One image file to one uint8 array."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

EXTENSIONS = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff"})
"""What counts as an image file, compared in lower case."""

_HIGH_DEPTH = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})


def decode(path: Path, image_size: int) -> npt.NDArray[np.uint8]:
    """The image as RGB uint8 (3, image_size, image_size).

    The EXIF orientation is applied, transparency is laid on white, 16-bit greys keep their upper 8 bits, of an
    animation the first frame counts. The image is squashed to a square (bilinear, antialiased as PIL does);
    its aspect ratio is not kept.
    """
    with Image.open(path) as opened:
        image = _rgb(ImageOps.exif_transpose(opened))
    if image.size != (image_size, image_size):
        image = image.resize((image_size, image_size), Image.Resampling.BILINEAR)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode in _HIGH_DEPTH:
        # PIL's own conversion clips at 255 and would turn a 16-bit image white.
        grey = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
        return Image.fromarray(grey).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")
