"""Decoding takes no more memory than promised and no more than estimated. Measured in processes of their own."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile import HOSTILE, saved
from PIL import Image

import climb
from climb.images.decode import MAX_MEMORY, MAX_SECONDS, TOO_LARGE
from climb.images.needs import memory_to_convert, memory_to_load

SIDE = 4096
MB = 10**6
SPARE = 35 * MB
"""Conversion by strips takes this much besides MAX_MEMORY."""
SLOW = {
    "scans-of-1000-px.jpg",
    "many-comments.pgm",
    "scans-of-9000-px.jpg",
    "long-comment.pgm",
    "thin.pgm",
    "profiles.png",
    "thin-rgba.png",
}

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of the memory is in /proc")


def measure(path: Path, *options: str) -> dict[str, Any]:
    """What ``measure.py`` prints."""
    script = Path(__file__).with_name("measure.py")
    command = [sys.executable, str(script), str(Path(climb.__file__).parent), str(path), *options]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return result


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow(seconds=10) if name in SLOW else ()) for name in HOSTILE]
)
def test_a_hostile_file_keeps_to_the_limits(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(HOSTILE[name]())
    taken = measure(tmp_path / name)
    assert taken["memory"] <= MAX_MEMORY + SPARE, taken
    assert taken["seconds"] <= MAX_SECONDS + 2, taken


@pytest.mark.parametrize("name", ["thin-grey.png", "flat-grey.png", "wide-tiles.jp2"])
def test_sides_that_no_camera_produces_are_refused_before_decoding(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(HOSTILE[name]())
    taken = measure(tmp_path / name)
    assert taken["outcome"] == TOO_LARGE
    assert "65,500 a side" in taken["detail"]
    assert taken["own"] < 10 * MB


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize(
    ("image", "kind", "options"),
    [
        pytest.param(("RGB", 9_400, 9_400), "PNG", {}, id="rgb"),
        pytest.param(("RGBA", 8_200, 8_200), "PNG", {}, id="rgba"),
        pytest.param(("LA", 8_200, 8_200), "PNG", {}, id="grey-transparent"),
        pytest.param(("RGB", 9_400, 9_400), "JPEG", {"progressive": True, "subsampling": 0}, id="jpeg"),
        pytest.param(("F", 8_000, 8_000), "TIFF", {"compression": "tiff_adobe_deflate"}, id="float"),
        pytest.param(("RGB", 6_000, 5_000), "WEBP", {"method": 0}, id="webp"),
        pytest.param(("RGB", 5_000, 5_000), "AVIF", {"speed": 10}, id="avif"),
        pytest.param(("RGB", 5_000, 4_600), "JPEG2000", {}, id="jpeg2000"),
    ],
)
def test_a_large_photograph_is_decoded_within_the_limits(
    image: tuple[str, int, int], kind: str, options: dict[str, Any], tmp_path: Path
) -> None:
    mode, *size = image
    (tmp_path / "large").write_bytes(saved(Image.new(mode, tuple(size)), kind, **options))
    taken = measure(tmp_path / "large")
    assert taken["outcome"] == "decoded", taken
    assert taken["memory"] <= MAX_MEMORY + SPARE, taken
    assert taken["seconds"] <= MAX_SECONDS, taken


# -- the estimate ------------------------------------------------------------------------------------------------------


def turned() -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def blank(mode: str) -> Image.Image:
    return Image.new(mode, (SIDE, SIDE))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: saved(blank("RGB"), "PNG"), id="rgb"),
        pytest.param(lambda: saved(blank("RGB"), "PNG", exif=turned()), id="rgb-turned"),
        pytest.param(lambda: saved(blank("RGBA"), "PNG"), id="rgba"),
        pytest.param(lambda: saved(blank("P"), "PNG", transparency=0), id="palette-transparent"),
        pytest.param(lambda: saved(Image.fromarray(np.zeros((SIDE, SIDE), np.uint16)), "PNG"), id="16-bit"),
        pytest.param(lambda: saved(blank("F"), "TIFF", compression="tiff_adobe_deflate"), id="float"),
        pytest.param(
            lambda: saved(
                blank("RGB"), "TIFF", compression="tiff_adobe_deflate", strip_size=4 * SIDE**2, exif=turned()
            ),
            id="tiff-one-strip-turned",
        ),
        pytest.param(lambda: saved(blank("RGB"), "JPEG", progressive=True, subsampling=0), id="jpeg-progressive"),
        pytest.param(lambda: saved(blank("RGBA"), "WEBP", method=0), id="webp"),
    ],
)
def test_decoding_takes_no_more_memory_than_estimated(make: Callable[[], bytes], tmp_path: Path) -> None:
    data = make()
    (tmp_path / "image").write_bytes(data)
    with Image.open(io.BytesIO(data)) as image:
        image.draft(None, (16, 16))
        estimated = max(memory_to_load(image, SIDE**2), memory_to_convert(image, None))
        if image.info.get("exif"):
            estimated = max(estimated, memory_to_convert(image, Image.Transpose.ROTATE_270))
    taken = measure(tmp_path / "image", "here")["own"]
    assert taken <= estimated + 50 * MB
    assert taken >= 0.5 * estimated - 10 * MB  # the estimate is not far too high


def test_a_tile_larger_than_its_image_counts() -> None:
    data = bytearray(saved(Image.new("L", (64, 64)), "TIFF", compression="tiff_adobe_deflate"))
    with Image.open(io.BytesIO(data)) as image:
        small = memory_to_load(image, 64 * 64)
        image.tag_v2[322] = image.tag_v2[323] = 30_000  # type: ignore[attr-defined]
        assert memory_to_load(image, 64 * 64) - small > 3_000 * MB


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_refused_images_are_not_loaded(kind: str, tmp_path: Path) -> None:
    image = Image.new("RGBA", (9_000, 9_000))
    (tmp_path / "image").write_bytes(saved(image, kind, **({"compression": "packbits"} if kind == "TIFF" else {})))
    taken = measure(tmp_path / "image")
    assert taken["outcome"] == TOO_LARGE
    assert taken["memory"] < 90 * MB
