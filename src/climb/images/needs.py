"""What decoding an image needs: whether this process may decode it, and the memory that it takes.

Memory is estimated from measurements on images of 25 million pixels. The estimate is for messages, and for systems that
cannot limit the memory of a helper process.
"""

from __future__ import annotations

from typing import Any

from PIL import ExifTags, Image

from climb.images.convert import Turn, has_small_directory, is_rgb

SMALL_BYTES, SMALL_PIXELS = 2**22, 2**24
"""Files and images up to these sizes may be decoded in this process."""

_SEGMENTS, _SCANS = 100, 100  # most of an ordinary JPEG
_CHUNKS, _OTHER_BYTES = 1000, 2**17  # most of an ordinary PNG


def is_ordinary(name: str, data: bytes) -> bool:
    """Whether the decoder of format ``name`` takes little memory and time for each byte and pixel of this file.

    True only for formats and structures whose worst case was measured. A file of 300 bytes may take a gigabyte to
    decode in other formats: as JPEG 2000 with 65,535 tiles, or as EXIF data with 65,535 entries.

    >>> is_ordinary("PPM", b"P6 2 2 255 "), is_ordinary("PPM", b"P3 2 2 255 "), is_ordinary("TIFF", b"II*")
    (True, False, False)
    """
    if len(data) > SMALL_BYTES:
        return False
    if name == "JPEG":
        return _is_ordinary_jpeg(data)
    if name == "PNG":
        return _is_ordinary_png(data)
    if name == "WEBP":  # lossless data may ask for 4,000 times their size in tables
        return data[12:16] == b"VP8 " or len(data) <= 2**16
    if name == "PPM":  # the text formats are parsed in Python
        return data[1:2] in b"456"
    return name in ("BMP", "GIF")


def _is_ordinary_png(data: bytes) -> bool:
    """Whether a PNG has few chunks, and little besides its pixels. Pillow unpacks each profile and each text."""
    place, other = 8, 0
    for _ in range(_CHUNKS):
        kind = data[place + 4 : place + 8]
        if kind in (b"IEND", b""):
            return other <= _OTHER_BYTES
        size = 12 + int.from_bytes(data[place : place + 4], "big")
        other += 0 if kind == b"IDAT" else size
        place += size
    return False


def _is_ordinary_jpeg(data: bytes) -> bool:
    """Whether a JPEG has few segments before its first scan, small EXIF data, no further images, and few scans."""
    place, end, has_exif, channels = 2, len(data), False, 0
    for _ in range(_SEGMENTS):
        if place + 10 > end or data[place] != 0xFF:
            return False
        marker, start = data[place + 1], place + 4
        if marker == 0xDA:  # one scan has all channels, or there are several
            return 0 < channels == data[start] or data.count(b"\xff\xda", place) <= _SCANS
        place += 2 + (data[place + 2] << 8 | data[place + 3])
        if marker in (0xC0, 0xC1):
            channels = data[start + 5]
        elif marker == 0xE1 and data.startswith(b"Exif", start):
            if has_exif or not has_small_directory(data[start:place]):  # Pillow joins several
                return False
            has_exif = True
        elif marker == 0xE2 and data.startswith(b"MPF\0", start):
            return False
    return False


# -- memory that decoding takes ----------------------------------------------------------------------------------------

_BYTES_PER_PIXEL = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2, "I;16N": 2}
"""Bytes of a pixel in Pillow's memory; 4 for every other mode, including RGB."""
_TOTAL_BYTES = {"WEBP": 16.5, "AVIF": 20.0}
"""Bytes a pixel that these decoders take in all. AVIF takes 13.3 with 8 bits a colour."""
_JPEG2000_BAND = 6.2
"""Bytes a pixel and band that the decoder takes besides the result."""


def memory_to_load(image: Image.Image, pixels: int) -> float:
    """Peak bytes of loading an opened image: the decoder's buffers and the result.

    ``pixels`` is the size before `Image.draft` reduced the scale.

    >>> memory_to_load(Image.new("RGB", (10, 10)), 100)
    400.0
    """
    if image.info.get("progressive"):  # a progressive JPEG keeps every coefficient of every band until its last scan
        return _stored_bytes(image) + 2.0 * len(image.getbands()) * pixels
    if image.format in _TOTAL_BYTES:
        return _TOTAL_BYTES[image.format] * pixels
    if image.format == "JPEG2000":
        return _stored_bytes(image) + _JPEG2000_BAND * len(image.getbands()) * pixels
    if image.format == "PPM" and _codec(image) != "raw":  # other codecs read all numbers before they store any
        return _stored_bytes(image) + 6.0 * pixels
    return _stored_bytes(image) + (_tiff_buffers(image) if image.format == "TIFF" else 0.0)


def memory_to_convert(image: Image.Image, turn: Turn) -> float:
    """Bytes of a loaded image and its upright RGB copy. An image that is upright RGB already is not copied.

    >>> memory_to_convert(Image.new("RGB", (10, 10)), None), memory_to_convert(Image.new("L", (10, 10)), None)
    (400.0, 500.0)
    """
    return _stored_bytes(image) + (0.0 if turn is None and is_rgb(image) else 4.0 * image.width * image.height)


def _codec(image: Any) -> str:
    return str(image.tile[0][0])


def _stored_bytes(image: Image.Image) -> float:
    return float(image.width * image.height * _BYTES_PER_PIXEL.get(image.mode, 4))


def _tiff_buffers(image: Any) -> float:
    """Bytes of the largest strip or tile, which is unpacked as a whole, and of the copy that turning makes."""
    tags, tag = image.tag_v2, ExifTags.Base
    copy = _stored_bytes(image) if tags.get(tag.Orientation, 1) != 1 else 0.0
    if tags.get(tag.Compression, 1) == 1:
        return copy
    if tag.TileWidth in tags and tag.TileLength in tags:
        part = int(tags[tag.TileWidth]) * int(tags[tag.TileLength])
    else:
        height = int(tags[tag.ImageLength])
        part = int(tags[tag.ImageWidth]) * min(height, int(tags.get(tag.RowsPerStrip, height)))
    bits = int(tags.get(tag.SamplesPerPixel, 1)) * int(max(tags.get(tag.BitsPerSample, (1,))))
    return copy + part * max(4.0, bits / 8)
