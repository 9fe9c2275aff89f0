"""Two ways to make a square of a picture."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image

Square = Callable[[Image.Image, int], Image.Image]
"""An RGB picture and a side in pixels to a picture of that side."""


def middle(image: Image.Image, side: int) -> Image.Image:
    """The shorter side resized, the longer one cropped: for people's own images, wherever they are read.

    >>> middle(Image.new("RGB", (60, 20)), 10).size
    (10, 10)
    """
    width, height = image.size
    if (width, height) == (side, side):
        return image
    least = min(width, height)
    left, top = (width - least) / 2, (height - least) / 2
    # Cropped on the way: a strip of 1 x 100,000 pixels must not become one of 224 x 22,400,000.
    box = (left, top, left + least, top + least)
    return image.resize((side, side), Image.Resampling.BILINEAR, box=box)


def squashed(image: Image.Image, side: int) -> Image.Image:
    """Both sides resized, the aspect ratio not kept: ImageNet's images, as in the paper."""
    return image if image.size == (side, side) else image.resize((side, side), Image.Resampling.BILINEAR)
