from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from climb.export.embed import decode_one
from climb.images.convert import Fit, center_square, squash, to_array
from climb.images.decode import ImageError, decode_rgb, read_image_file

RED = (200, 30, 60)


def decode(path: Path, image_size: int, square: Fit) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """As labelled folders are decoded."""
    return to_array(decode_rgb(read_image_file(str(path)), image_size, square).image)


def test_rgb_is_kept_as_it_is(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    decoded = decode(tmp_path / "a.png", 16, squash)
    assert decoded.dtype == np.uint8
    np.testing.assert_array_equal(decoded, pixels.transpose(2, 0, 1))


def test_squashed_without_keeping_the_aspect_ratio(tmp_path: Path) -> None:
    pixels = np.zeros((20, 60, 3), dtype=np.uint8)
    pixels[:, 30:] = 255
    image = Image.fromarray(pixels)
    image.save(tmp_path / "a.png")
    expected = np.asarray(image.resize((10, 10), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
    decoded = decode(tmp_path / "a.png", 10, squash)
    np.testing.assert_array_equal(decoded, expected)
    assert decoded[:, :, :4].max() == 0
    assert decoded[:, :, 6:].min() == 255


def test_folders_and_sources_take_the_same_square(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 61, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    np.testing.assert_array_equal(
        decode(tmp_path / "a.png", 10, center_square), decode_one(tmp_path / "a.png", 10).numpy()
    )
    assert (decode(tmp_path / "a.png", 10, center_square) != decode(tmp_path / "a.png", 10, squash)).any()


@pytest.mark.parametrize(("mode", "suffix"), [("P", "png"), ("P", "gif"), ("RGB", "bmp"), ("RGB", "tif")])
def test_lossless_formats_keep_a_colour(tmp_path: Path, mode: str, suffix: str) -> None:
    image = Image.new("RGB", (12, 12), RED)
    (image.quantize(4) if mode == "P" else image).save(tmp_path / f"a.{suffix}")
    assert decode(tmp_path / f"a.{suffix}", 12, squash)[:, 5, 5].tolist() == list(RED)


@pytest.mark.parametrize(("mode", "suffix"), [("CMYK", "jpg"), ("RGB", "jpg"), ("RGB", "webp")])
def test_lossy_formats_keep_a_colour_nearly(tmp_path: Path, mode: str, suffix: str) -> None:
    Image.new("RGB", (16, 16), RED).convert(mode).save(tmp_path / f"a.{suffix}", quality=95)
    assert np.abs(decode(tmp_path / f"a.{suffix}", 16, squash)[:, 8, 8].astype(int) - RED).max() <= 6


def test_grey_becomes_three_equal_channels(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 77).save(tmp_path / "a.png")
    assert np.unique(decode(tmp_path / "a.png", 8, squash)).tolist() == [77]


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_keep_the_upper_eight(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(np.full((8, 8), 0x4D12, dtype=np.uint16)).save(tmp_path / f"a.{suffix}")
    assert np.unique(decode(tmp_path / f"a.{suffix}", 8, squash)).tolist() == [0x4D]


def test_transparency_is_laid_on_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (8, 8), (*RED, 255))
    image.paste((0, 0, 0, 0), (0, 0, 4, 8))
    image.save(tmp_path / "a.png")
    decoded = decode(tmp_path / "a.png", 8, squash)
    assert decoded[:, 0, 0].tolist() == [255, 255, 255]
    assert decoded[:, 0, 7].tolist() == list(RED)
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([0, 0, 0, *RED])
    palette.save(tmp_path / "b.png", transparency=bytes([255, 0]))
    assert decode(tmp_path / "b.png", 8, squash)[:, 0, 0].tolist() == [255, 255, 255]


def test_the_first_frame_of_an_animation(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour).quantize(2) for colour in (RED, (0, 0, 255))]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert decode(tmp_path / "a.gif", 8, squash)[:, 0, 0].tolist() == list(RED)


def test_the_exif_orientation_is_applied(tmp_path: Path) -> None:
    image = Image.new("RGB", (16, 16), "black")
    image.paste("white", (0, 0, 16, 8))
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    image.save(tmp_path / "a.jpg", exif=exif)
    decoded = decode(tmp_path / "a.jpg", 16, squash)
    assert decoded[:, 2].max() < 20
    assert decoded[:, 13].min() > 235


def test_a_postscript_program_named_as_an_image_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given, **how: started.append(given))
    (tmp_path / "a.jpg").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    )
    with pytest.raises(ImageError, match="EPS is not decoded; allowed are JPEG, PNG"):
        decode(tmp_path / "a.jpg", 8, squash)
    assert started == []
