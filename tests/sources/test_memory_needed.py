"""What is said to be needed is what is taken."""

from __future__ import annotations

import ctypes
import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from climb.sources.decode import decode
from climb.sources.item import TOO_LARGE, Unusable
from climb.sources.memory_needed import to_convert, to_load

SIDE = 4096
MB = 10**6
CLEAR = Path("/proc/self/clear_refs")

pytestmark = pytest.mark.skipif(
    not os.access(CLEAR, os.W_OK) or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="the peak of the memory cannot be measured here",
)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, format=kind, **options)
    return content.getvalue()


def memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def settled() -> int:
    """The memory in use, without what was freed and is kept for later; the peak counts from here."""
    ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5", encoding="ascii")
    return memory("VmRSS")


def taken_by(data: bytes) -> int:
    before = settled()
    decode(data, 8)
    return memory("VmHWM") - before


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
def test_decoding_takes_no_more_than_is_said_beforehand(make: Callable[[], bytes]) -> None:
    data = make()
    with Image.open(io.BytesIO(data)) as image:
        image.draft(None, (16, 16))
        said = max(to_load(image, SIDE**2), to_convert(image, None))
        if image.info.get("exif"):
            said = max(said, to_convert(image, Image.Transpose.ROTATE_270))
    decode(saved(Image.new("RGB", (8, 8)), "PNG"), 8)  # what is imported late
    taken = min(taken_by(data) for _ in range(3))  # a thread that an earlier test left may take memory meanwhile
    assert taken <= said + 50 * MB
    assert taken >= 0.5 * said - 10 * MB  # nor is there much less to fear


def test_a_tile_larger_than_its_image_counts() -> None:
    data = bytearray(saved(Image.new("L", (64, 64)), "TIFF", compression="tiff_adobe_deflate"))
    with Image.open(io.BytesIO(data)) as image:
        small = to_load(image, 64 * 64)
        image.tag_v2[322] = image.tag_v2[323] = 30_000  # type: ignore[attr-defined]
        assert to_load(image, 64 * 64) - small > 3_000 * MB


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_what_is_refused_is_not_loaded(kind: str) -> None:
    data = saved(Image.new("RGBA", (9_000, 9_000)), kind, **({"compression": "packbits"} if kind == "TIFF" else {}))
    before = settled()
    with pytest.raises(Unusable) as caught:
        decode(data, 8)
    assert caught.value.reason == TOO_LARGE
    assert memory("VmHWM") - before < 30 * MB
