"""Time of decoding an image file, over plain Pillow.

    python benchmarks/decode.py
    python benchmarks/decode.py --formats JPEG PNG WEBP TIFF --sides 227 1000

Decodes the same files to squares of --image-size in two ways, which alternate: `decode_rgb` with all its limits, and
Pillow as anyone would call it, with reduced-scale JPEG decoding and the EXIF orientation. Medians per image, and their
ratio. Files that need a helper process are slower by the messages to it.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from climb.images.convert import center_square
from climb.images.decode import decode_rgb


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--formats", nargs="+", default=["JPEG", "PNG"])
    arguments.add_argument("--sides", nargs="+", type=int, default=[227, 1000])
    arguments.add_argument("--files", type=int, default=100, help="files of each format; a fifth above 500 px")
    arguments.add_argument("--repeats", type=int, default=11)
    arguments.add_argument("--image-size", type=int, default=64)
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    rows = {
        f"{kind}, {side} px": measure(kind, side, given.files if side <= 500 else max(1, given.files // 5), given)
        for kind in given.formats
        for side in given.sides
    }
    if given.json:
        print(json.dumps(rows, indent=2))
    else:
        for name, row in rows.items():
            print(name, "  ".join(f"{key} {value}" for key, value in row.items()))


def measure(kind: str, side: int, count: int, given: argparse.Namespace) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    files = [photograph(generator, side, kind) for _ in range(count)]
    ways: dict[str, Callable[[bytes], Image.Image]] = {
        "plain": lambda data: plain(data, given.image_size),
        "safe": lambda data: decode_rgb(data, given.image_size).image,
    }
    assert all(np.array_equal(*(np.asarray(way(data)) for way in ways.values())) for data in files[:3])
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(given.repeats):
        for name in ways if repeat % 2 else reversed(ways):
            began = time.perf_counter()
            for data in files:
                ways[name](data)
            seconds[name].append(time.perf_counter() - began)
    times = {f"{name}_ms": round(1000 * statistics.median(values) / count, 3) for name, values in seconds.items()}
    ratios = [safe / plain for safe, plain in zip(seconds["safe"], seconds["plain"], strict=True)]
    return {**times, "ratio": round(statistics.median(ratios), 3)}


def photograph(generator: np.random.Generator, side: int, kind: str) -> bytes:
    """A file of smooth colours with some noise, and with EXIF data if it is a JPEG."""
    coarse = generator.integers(0, 256, (side // 8 + 1, side // 8 + 1, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC)).astype(np.int16)
    noisy = smooth + generator.integers(-8, 9, smooth.shape, dtype=np.int16)
    exif = Image.Exif()
    exif[0x010F] = "maker"
    content = io.BytesIO()
    options: dict[str, Any] = (
        {"exif": exif} if kind == "JPEG" else {"compression": "tiff_lzw"} if kind == "TIFF" else {}
    )
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(content, format=kind, **options)
    return content.getvalue()


def plain(data: bytes, side: int) -> Image.Image:
    with Image.open(io.BytesIO(data)) as image:
        image.draft(None, (2 * side, 2 * side))
        return center_square(ImageOps.exif_transpose(image).convert("RGB"), side)


if __name__ == "__main__":
    main()
