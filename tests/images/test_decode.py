"""Unusual images, damaged images, and files that are not images."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from climb.images.decode import (
    CORRUPT,
    MAX_PIXELS,
    NOT_AN_IMAGE,
    REASONS,
    TOO_LARGE,
    TRUNCATED,
    UNREADABLE,
    ImageError,
    read_image_file,
)
from climb.images.tensors import Decoder


def saved(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, format=kind, **options)
    return content.getvalue()


def decode(data: bytes, image_size: int) -> torch.Tensor:
    return Decoder(image_size=image_size)(data, "an image")


def square_tensor(image: Image.Image, image_size: int) -> torch.Tensor:
    return Decoder(image_size=image_size).picture(image, "an image")


def one_colour(data: bytes, size: int = 8) -> tuple[int, ...]:
    """The colour of a decoded image, which must be one throughout."""
    image = decode(data, size)
    assert image.dtype == torch.uint8
    assert image.shape == (3, size, size)
    assert image.is_contiguous()
    low, high = image.amin(dim=(1, 2)).int(), image.amax(dim=(1, 2)).int()
    assert (high - low).max() <= 2  # JPEG rounds
    return tuple(int(value) for value in image[:, 0, 0])


def png_header(width: int, height: int, colour: int = 2) -> bytes:
    """The first bytes of a PNG that claims to be that large."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunk = struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))
    data = zlib.compress(b"\0" * 1000)
    idat = b"IDAT" + data
    return b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", len(data)) + idat + struct.pack(">I", zlib.crc32(idat))


RED = (200, 10, 10)


@pytest.mark.parametrize(
    ("data", "colour"),
    [
        (saved(Image.new("L", (12, 9), 77)), (77, 77, 77)),
        (saved(Image.new("1", (12, 9), 1)), (255, 255, 255)),
        (saved(Image.new("RGB", (12, 9), RED).convert("P", palette=Image.Palette.ADAPTIVE)), RED),
        (saved(Image.new("RGBA", (12, 9), (0, 0, 0, 0))), (255, 255, 255)),
        (saved(Image.new("LA", (12, 9), (50, 255))), (50, 50, 50)),
        (saved(Image.new("I;16", (12, 9), 77 * 256 + 3)), (77, 77, 77)),
        (saved(Image.new("F", (12, 9), 0.5), "TIFF"), (127, 127, 127)),
        (saved(Image.new("F", (12, 9), 90.0), "TIFF"), (90, 90, 90)),
        (saved(Image.new("CMYK", (12, 9), (0, 0, 0, 255)), "JPEG"), (0, 0, 0)),
        (saved(Image.new("YCbCr", (12, 9), (128, 128, 128)), "JPEG"), (128, 128, 128)),
        (saved(Image.new("RGB", (12, 9), RED), "BMP"), RED),
        (saved(Image.new("RGB", (12, 9), RED), "WEBP", lossless=True), RED),
        (saved(Image.new("RGB", (12, 9), RED), "PPM"), RED),
        (saved(Image.new("RGB", (1, 1), RED)), RED),
        (saved(Image.new("RGB", (1, 30_000), RED)), RED),  # the strip that a naive resize would turn into gigabytes
    ],
    ids=lambda value: "" if isinstance(value, bytes) else "-".join(map(str, value)),
)
def test_every_mode_arrives_as_rgb(data: bytes, colour: tuple[int, int, int]) -> None:
    assert max(abs(a - b) for a, b in zip(one_colour(data), colour, strict=True)) <= 2


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_the_first_frame_of_an_animation(kind: str) -> None:
    frames = [Image.new("RGB", (10, 10), colour) for colour in (RED, (0, 0, 255))]
    data = saved(frames[0], kind, save_all=True, append_images=frames[1:], duration=100)
    assert max(abs(a - b) for a, b in zip(one_colour(data), RED, strict=True)) <= 12  # WebP is lossy


def test_the_orientation_in_the_exif_data_is_applied() -> None:
    pixels = np.zeros((8, 8, 3), dtype=np.uint8)
    pixels[:4] = 255  # the upper half is white
    exif = Image.Exif()
    exif[0x0112] = 6  # rotate clockwise to display: the top of the scene is at the right
    turned = decode(saved(Image.fromarray(pixels), "PNG", exif=exif), 8)
    assert int(turned[0, :, 4:].min()) == 255
    assert int(turned[0, :, :4].max()) == 0


def test_the_shorter_side_is_resized_and_the_middle_kept() -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 48, 3), dtype=np.uint8))
    in_two_steps = picture.resize((24, 8), Image.Resampling.BILINEAR).crop((8, 0, 16, 8))
    for wide, expected in (
        (picture, in_two_steps),
        (picture.transpose(Image.Transpose.ROTATE_90), in_two_steps.transpose(Image.Transpose.ROTATE_90)),
    ):
        difference = square_tensor(wide, 8).int() - torch.from_numpy(np.array(expected)).permute(2, 0, 1).int()
        assert int(difference.abs().max()) <= 1


def test_an_image_of_the_right_size_is_left_as_it_is() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    assert torch.equal(decode(saved(Image.fromarray(pixels)), 16), torch.from_numpy(pixels.transpose(2, 0, 1).copy()))


def test_a_large_photograph_is_decoded_at_a_reduced_scale() -> None:
    ramp = Image.linear_gradient("L").resize((2048, 1536)).convert("RGB")
    fast = decode(saved(ramp, "JPEG", quality=95), 32)
    assert float((fast.float() - square_tensor(ramp, 32).float()).abs().max()) <= 3


# -- unusable images -------------------------------------------------------------------------------------------------

PICTURE = saved(Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)))
PHOTO = saved(Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)), "JPEG")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", NOT_AN_IMAGE),
        (b"<html>not found</html>", NOT_AN_IMAGE),
        (saved(Image.new("RGB", (16, 16)), "ICO"), NOT_AN_IMAGE),  # decoded before its size is known
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n", NOT_AN_IMAGE),  # a program
        (PICTURE[: len(PICTURE) // 2], TRUNCATED),
        (PHOTO[: len(PHOTO) // 2], TRUNCATED),
        (PICTURE[:60] + b"\0" * 200 + PICTURE[260:], CORRUPT),
        (png_header(60_000, 60_000), TOO_LARGE),  # a decompression bomb: 10 GB once decoded
        (png_header(10_000, 10_000), TOO_LARGE),
    ],
    ids=["empty", "html", "icon", "postscript", "half-png", "half-jpeg", "damaged", "bomb", "gigantic"],
)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_unusable_images_give_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ImageError) as caught:
        decode(data, 16)
    assert caught.value.reason == reason, caught.value.detail
    assert caught.value.detail


def test_the_largest_image_has_a_known_size() -> None:
    assert MAX_PIXELS == Image.MAX_IMAGE_PIXELS


def test_an_image_is_refused_by_the_memory_it_needs() -> None:
    side = 9_400
    assert side * side < MAX_PIXELS
    with pytest.raises(ImageError, match=r"take 707 MB of memory; at most 5\d\d MB are allowed") as caught:
        decode(png_header(side, side, colour=6), 8)  # RGBA
    assert caught.value.reason == TOO_LARGE
    with pytest.raises(ImageError) as caught:
        decode(png_header(side, side, colour=0), 8)  # grey fits, so it is decoded, and is empty
    assert caught.value.reason == TRUNCATED


def test_files_that_cannot_be_read_or_are_too_long(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImageError) as caught:
        read_image_file(f"{tmp_path}/nothing.png")
    assert caught.value.reason == UNREADABLE
    with open(f"{tmp_path}/long.png", "wb") as handle:
        handle.truncate(300 * 2**20)  # a sparse file
    with pytest.raises(ImageError) as caught:
        read_image_file(f"{tmp_path}/long.png")
    assert caught.value.reason == TOO_LARGE


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for path in (str(tmp_path / "pipe.png"), "/dev/zero", str(tmp_path), "a\0b.png"):
        with pytest.raises(ImageError) as caught:
            read_image_file(path)
        assert caught.value.reason == UNREADABLE


@pytest.mark.parametrize("kind", ["TIFF", "JPEG", "PNG", "WEBP"])
def test_a_turned_photograph_is_turned_once(kind: str) -> None:
    pixels = np.zeros((24, 48, 3), dtype=np.uint8)
    pixels[:, :24] = 255  # the left half
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    image = decode(saved(Image.fromarray(pixels), kind, exif=exif), 8).float()
    assert image[:, :3].mean() > 250
    assert image[:, 5:].mean() < 5


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM"])
@pytest.mark.filterwarnings("ignore")  # Pillow warns about the damage
def test_damaged_bytes_give_an_image_or_an_image_error(kind: str) -> None:
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (24, 24, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 3
    options = {"exif": exif} if kind in ("PNG", "JPEG", "WEBP", "TIFF") else {}
    whole = np.frombuffer(saved(Image.fromarray(pixels), kind, **options), dtype=np.uint8)
    outcomes = set()
    for _ in range(60):
        damaged = whole.copy()
        places = generator.integers(0, len(whole) if generator.random() < 0.5 else min(64, len(whole)), 4)
        damaged[places] = generator.integers(0, 256, 4)
        try:
            image = decode(damaged[: generator.integers(len(whole) // 2, 2 * len(whole))].tobytes(), 16)
            assert image.shape == (3, 16, 16)
            outcomes.add("image")
        except ImageError as error:
            outcomes.add(error.reason)
    assert outcomes <= {"image", *REASONS}
    assert outcomes & set(REASONS)
