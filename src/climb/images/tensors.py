"""Images as tensors: uint8 (3, image_size, image_size)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import Lock

import torch
from PIL import Image

from climb.images.convert import (
    Fit,
    PixelRange,
    center_square,
    exif_turn,
    is_deep,
    to_array,
    to_rgb,
    value_range,
)
from climb.images.decode import NOT_AN_IMAGE, ImageError, decode_rgb, read_image_file

log = logging.getLogger("climb.images")


@dataclass(frozen=True, kw_only=True, eq=False)
class Decoder:
    """Decodes the images of one source or dataset. One line of the log says how images of more than 8 bits are scaled.

    >>> Decoder(image_size=2).picture(Image.new("L", (5, 4), 77), "a grey picture")[0].tolist()
    [[77, 77], [77, 77]]
    """

    image_size: int
    fit: Fit = center_square
    """`center_square` or `squash`."""
    pixel_range: PixelRange | None = None
    """Values that become black and white in images of more than 8 bits; None for the range of each image."""
    _logged: Lock = field(default_factory=Lock, init=False, repr=False)

    def __call__(self, data: bytes, where: str) -> torch.Tensor:
        """The image in the content of a file; `ImageError` if it cannot be used. ``where`` names it in the log."""
        decoded = decode_rgb(data, self.image_size, self.fit, self.pixel_range)
        self._log(decoded.pixel_range, where)
        return torch.from_numpy(to_array(decoded.image))

    def file(self, path: str) -> torch.Tensor:
        """The image in a file; `ImageError` if it cannot be used."""
        return self(read_image_file(path), path)

    def picture(self, picture: Image.Image, where: str) -> torch.Tensor:
        """A loaded picture of any mode; `ImageError` if it is empty."""
        if 0 in picture.size:  # resizing would make a black image of it
            raise ImageError(NOT_AN_IMAGE, f"{picture.width} x {picture.height} pixels")
        pixel_range = (self.pixel_range or value_range(picture)) if is_deep(picture) else None
        self._log(pixel_range, where)
        rgb = to_rgb(picture, exif_turn(picture), pixel_range)
        return torch.from_numpy(to_array(self.fit(rgb, self.image_size)))

    def _log(self, pixel_range: PixelRange | None, where: str) -> None:
        if pixel_range is None or not self._logged.acquire(blocking=False):  # never released: one line for all images
            return
        low, high = pixel_range
        if self.pixel_range is not None:
            log.info("images of more than 8 bits are scaled from %g to %g, such as %s", low, high, where)
            return
        scaled = "images of more than 8 bits are scaled by the range of each, such as"
        log.info("%s %g to %g of %s; --pixel-range LOW HIGH gives all one range", scaled, low, high, where)
