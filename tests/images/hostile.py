"""Small files that would take gigabytes or minutes to decode: `HOSTILE` makes each of them."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    content = io.BytesIO()
    image.save(content, format=kind, **options)
    return content.getvalue()


def png(width: int, height: int, *, channels: int, chunks: bytes = b"") -> bytes:
    """A black PNG. ``chunks`` come before the pixels."""
    colour = {1: 0, 3: 2, 4: 6}[channels]
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0))
    squeeze, rows = zlib.compressobj(1), bytes(1 + channels * width)
    step = max(1, 2**20 // len(rows))
    parts = [squeeze.compress(rows * min(step, height - row)) for row in range(0, height, step)]
    pixels = chunk(b"IDAT", b"".join([*parts, squeeze.flush()]))
    return b"\x89PNG\r\n\x1a\n" + header + chunks + pixels + chunk(b"IEND", b"")


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def directory(entries: int, value_bytes: int, *, padding: int = 0) -> bytes:
    """A TIFF directory of entries that all have the same bytes as their value."""
    end = 8 + 2 + 12 * entries + 4
    rows = b"".join(struct.pack(">HHII", 1 + i, 1, value_bytes, 8) for i in range(entries))
    return b"MM\0*\0\0\0\x08" + struct.pack(">H", entries) + rows + bytes(4) + bytes(max(padding, value_bytes - end))


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, 2 + len(content)) + content


def jpeg(*segments: bytes, side: int = 16) -> bytes:
    """A JPEG with more segments at its beginning."""
    plain = saved(Image.new("RGB", (side, side)), "JPEG")
    return plain[:2] + b"".join(segments) + plain[2:]


def many_scans(side: int, scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    plain = saved(Image.new("L", (side, side)), "JPEG", progressive=True)
    place = plain.rindex(b"\xff\xda")
    return plain[:place] + plain[place:-2] * scans + plain[-2:]


def jpeg2000(columns: int, rows: int) -> bytes:
    """A codestream that claims a tile for each pixel."""
    sizes = struct.pack(">HIIIIIIIIH", 0, columns, rows, 0, 0, 1, 1, 0, 0, 1) + bytes([7, 1, 1])
    coding = bytes([0, 0, 0, 1, 0, 0, 4, 4, 0, 1])
    quantisation = bytes([0x40, 0x40])
    tile = struct.pack(">HIBB", 0, 14, 0, 1)
    parts = segment(0x51, sizes) + segment(0x52, coding) + segment(0x5C, quantisation) + segment(0x90, tile)
    return b"\xff\x4f" + parts + b"\xff\x93\xff\xd9"


def tile_of(side: int) -> bytes:
    """A small compressed TIFF that claims to be stored in one tile of this side."""
    image = Image.new("L", (64, 64))
    return saved(image, "TIFF", compression="tiff_lzw", tiffinfo={322: side, 323: side, 324: 8, 325: 100})


def gif_with_comments(count: int) -> bytes:
    plain = saved(Image.new("L", (8, 8)), "GIF")
    place = plain.index(b",\0\0\0\0")
    return plain[:place] + b"!\xfe" + (b"\xff" + bytes(255)) * count + b"\0" + plain[place:]


HOSTILE: dict[str, Callable[[], bytes]] = {
    "thin-grey.png": lambda: png(1, 89_000_000, channels=1),
    "flat-grey.png": lambda: png(89_000_000, 1, channels=1),
    "thin-rgba.png": lambda: png(1, 89_000_000, channels=4),
    "thin.pgm": lambda: b"P5 1 89000000 255\n" + bytes(89_000_000),
    "side-of-65500.png": lambda: png(65_500, 1_300, channels=1),
    "many-tiles.jp2": lambda: jpeg2000(257, 255),
    "wide-tiles.jp2": lambda: jpeg2000(65_535, 1),
    "long-comment.pgm": lambda: b"P5\n#" + b"a" * 50_000_000 + b"\n2 2 255 abcd",
    "comment-of-4-mb.pgm": lambda: b"P5\n#" + b"a" * 4_000_000 + b"\n2 2 255 abcd",
    "many-comments.pgm": lambda: b"P2\n2 2 255\n" + b"#\n" * 2_000_000 + b"1 2 3 4",
    "exif-in-one-segment.jpg": lambda: jpeg(segment(0xE1, b"Exif\0\0" + directory(5_400, 65_000))),
    "exif-in-two-segments.jpg": lambda: jpeg(
        segment(0xE1, b"Exif\0\0" + directory(5_400, 120_000)[:65_000]), segment(0xE1, b"Exif\0\0" + bytes(65_000))
    ),
    "exif.png": lambda: png(8, 8, channels=3, chunks=chunk(b"eXIf", directory(65_535, 1_000_000))),
    "exif-in-text.png": lambda: png(
        8,
        8,
        channels=3,
        chunks=chunk(
            b"zTXt",
            b"Raw profile type exif\0\0"
            + zlib.compress(b"\nexif\n 8\n" + directory(30_000, 400_000).hex().encode()),
        ),
    ),
    "text-of-60-mb.png": lambda: png(
        4096, 4096, channels=4, chunks=chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2**20 - 1))) * 60
    ),
    "profiles.png": lambda: png(
        8, 8, channels=3, chunks=chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(2**20 - 1), 9)) * 3_500
    ),
    "further-images.jpg": lambda: jpeg(segment(0xE2, b"MPF\0" + directory(5_400, 65_000))),
    "million-segments.jpg": lambda: jpeg(b"\xff\xe5\0\2" * 1_000_000),
    "scans-of-1000-px.jpg": lambda: many_scans(1_000, 20_000),
    "scans-of-9000-px.jpg": lambda: many_scans(9_000, 20_000),
    "directory.tif": lambda: directory(65_000, 1_000_000),
    "tile.tif": lambda: tile_of(30_000),
    "comments.gif": lambda: gif_with_comments(16_000),
    "runs.bmp": lambda: (
        b"BM" + struct.pack("<IHHI", 0, 0, 0, 54 + 1024)
        + struct.pack("<IiiHHIIiiII", 40, 4096, 4096, 1, 8, 1, 0, 0, 0, 256, 0)
        + bytes(1024) + b"\1\7" * 1_900_000
    ),
    "progressive-cmyk.jpg": lambda: saved(Image.new("CMYK", (4096, 4096)), "JPEG", progressive=True),
    "noise.png": lambda: saved(
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (1000, 1300, 3), dtype=np.uint8)), "PNG"
    ),
}  # fmt: skip
"""Names of files and their contents."""
