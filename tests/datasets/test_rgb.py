"""A large picture in strips is what it is as a whole."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageOps

from climb.datasets import rgb
from climb.datasets.rgb import to_rgb, turn_of

GENERATOR = np.random.default_rng(0)
WIDTH, HEIGHT = 37, 23


def noise(*channels: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return GENERATOR.integers(0, 256, (HEIGHT, WIDTH, *channels), dtype=np.uint8)


def palette() -> Image.Image:
    image = Image.fromarray(noise(3)).quantize(32)
    image.info["transparency"] = bytes(GENERATOR.integers(0, 256, 32, dtype=np.uint8))
    return image


def one_bright_pixel() -> Image.Image:
    values = GENERATOR.random((HEIGHT, WIDTH), dtype=np.float32)
    values[-1, -1] = 200.0  # all strips are to count to 255, not only the last
    values[0, 0], values[0, 1] = np.nan, -np.inf
    return Image.fromarray(values)


PICTURES = {
    "RGB": Image.fromarray(noise(3)),
    "RGBA": Image.fromarray(noise(4)),
    "LA": Image.fromarray(noise(2), "LA"),
    "L": Image.fromarray(noise()),
    "P": palette(),
    "1": Image.fromarray(noise()).convert("1"),
    "CMYK": Image.fromarray(noise(4), "CMYK"),
    "I;16": Image.fromarray(GENERATOR.integers(0, 2**16, (HEIGHT, WIDTH), dtype=np.uint16)),
    "F": one_bright_pixel(),
}


@pytest.mark.parametrize("kind", PICTURES)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_strips_and_turns_change_no_bit(kind: str, orientation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    image = PICTURES[kind].copy()
    image.getexif()[0x0112] = orientation
    turn = turn_of(image)
    expected = np.asarray(to_rgb(ImageOps.exif_transpose(image)))
    monkeypatch.setattr(rgb, "STRIP_PIXELS", 100)
    np.testing.assert_array_equal(np.asarray(to_rgb(image, turn)), expected)


def test_the_colours_of_each_mode_are_those_of_numpy() -> None:
    rgba = np.asarray(PICTURES["RGBA"]).astype(float)
    share = rgba[..., 3:] / 255
    on_white = rgba[..., :3] * share + 255 * (1 - share)
    assert np.abs(np.asarray(to_rgb(PICTURES["RGBA"])) - on_white).max() <= 1
    upper = np.asarray(PICTURES["I;16"]) >> 8
    np.testing.assert_array_equal(np.asarray(to_rgb(PICTURES["I;16"])), np.repeat(upper[..., None], 3, axis=2))
