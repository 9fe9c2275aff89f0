"""Converting in strips gives the same pixels as converting at once."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageOps

from climb.images import convert
from climb.images.convert import exif_turn, to_rgb

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
    values[-1, -1] = 200.0  # all strips must have one range
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
    turn = exif_turn(image)
    expected = np.asarray(to_rgb(ImageOps.exif_transpose(image)))
    monkeypatch.setattr(convert, "STRIP_PIXELS", 100)
    np.testing.assert_array_equal(np.asarray(to_rgb(image, turn)), expected)


def test_the_colours_of_each_mode_are_those_of_numpy() -> None:
    rgba = np.asarray(PICTURES["RGBA"]).astype(float)
    share = rgba[..., 3:] / 255
    on_white = rgba[..., :3] * share + 255 * (1 - share)
    assert np.abs(np.asarray(to_rgb(PICTURES["RGBA"])) - on_white).max() <= 1


def grey_levels(image: Image.Image, pixel_range: tuple[float, float] | None = None) -> list[int]:
    return sorted(set(np.asarray(to_rgb(image, None, pixel_range))[..., 0].flatten().tolist()))


def deep(mode: str, low: int, high: int) -> Image.Image:
    values = np.arange(low, high + 1).repeat(2).reshape(2, -1)
    return Image.fromarray(values.astype({"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]))


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_images_of_more_than_8_bits_keep_256_levels_of_their_range(mode: str) -> None:
    assert grey_levels(deep(mode, 7000, 8000)) == list(range(256))
    assert grey_levels(deep(mode, 0, 2**16 - 1)) == list(range(256))


def test_a_given_range_is_the_same_for_all_images() -> None:
    assert grey_levels(deep("I;16", 7500, 7500), (7000, 8000)) == [128]
    assert grey_levels(deep("I;16", 100, 101), (7000, 8000)) == [0]
    assert grey_levels(deep("F", 9000, 9001), (7000, 8000)) == [255]
    assert grey_levels(Image.new("L", (2, 2), 50), (0, 100)) == [50]  # 8 bits are what they are


@pytest.mark.parametrize(
    ("mode", "value", "level"),
    [("I;16", 77 * 257, 77), ("I", 77, 77), ("I", 77 * 257, 77), ("F", 0.5, 128), ("F", 77, 77), ("F", -5, 0)],
)
def test_an_image_of_one_value_keeps_a_shade(mode: str, value: float, level: int) -> None:
    assert grey_levels(Image.new(mode, (3, 3), value)) == [level]


def test_values_that_are_no_numbers_do_not_count_for_the_range() -> None:
    image = Image.fromarray(np.array([[np.nan, np.inf, -np.inf, 10, 20]], dtype=np.float32))
    assert np.asarray(to_rgb(image))[0, :, 0].tolist() == [0, 255, 0, 0, 255]
    assert grey_levels(Image.new("F", (2, 2), float("nan"))) == [0]
