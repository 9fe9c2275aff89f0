"""Decode one image safely: known formats only, within bounds on pixels, memory and time, upright and RGB."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from signal import SIGKILL, SIGXCPU

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    Image,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from climb.images.convert import Fit, PixelRange, center_square, exif_turn, is_deep, to_rgb, value_range
from climb.images.helper import HelperEnded, ask_helper
from climb.images.needs import SMALL_PIXELS, is_ordinary, memory_to_convert, memory_to_load

FORMATS: dict[str, Callable[[io.BytesIO], ImageFile.ImageFile]] = {
    "JPEG": JpegImagePlugin.JpegImageFile,  # not its factory, which looks for further images
    "PNG": PngImagePlugin.PngImageFile,
    "WEBP": WebPImagePlugin.WebPImageFile,
    "GIF": GifImagePlugin.GifImageFile,
    "BMP": BmpImagePlugin.BmpImageFile,
    "TIFF": TiffImagePlugin.TiffImageFile,
    "PPM": PpmImagePlugin.PpmImageFile,
    "AVIF": AvifImagePlugin.AvifImageFile,
    "JPEG2000": Jpeg2KImagePlugin.Jpeg2KImageFile,
}
"""Formats that are decoded, whatever the name of the file: those of cameras and of the web.

Pillow knows more. It would start Ghostscript for a PostScript file, and decode an icon before it knows the true size.
"""
MAX_SIDE = 65_500
"""Images with a longer side are not decoded. This is the bound of JPEG."""
MAX_PIXELS = 89_478_485
"""Larger images are not decoded. This is Pillow's own bound."""
MAX_MEMORY = 600 * 10**6
"""Bytes that a thread may take to decode an image, those of the file and of the helper process included."""
MAX_SECONDS = 30
"""Seconds of processor time that decoding an image may take."""
MAX_FILE_BYTES = 256 * 2**20
"""Larger files are not read."""

REASONS = ("not an image", "truncated", "corrupt", "too large", "unreadable")
"""Why an image cannot be used."""
NOT_AN_IMAGE, TRUNCATED, CORRUPT, TOO_LARGE, UNREADABLE = REASONS


class ImageError(Exception):
    """An image cannot be used. ``reason`` is one of `REASONS`, ``detail`` the decoder's message."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def read_image_file(path: str) -> bytes:
    """The bytes of an image file; `ImageError` if it is too large or cannot be read."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would block, and a device never ends
            raise ImageError(UNREADABLE, "not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise ImageError(TOO_LARGE, f"{status.st_size:,} bytes; at most {MAX_FILE_BYTES:,} are read")
        with open(path, "rb") as handle:
            return handle.read(MAX_FILE_BYTES)
    except (OSError, ValueError) as error:  # ValueError: the path contains a null byte
        raise ImageError(UNREADABLE, str(error)) from error


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A decoded image."""

    image: Image.Image
    """The first frame, upright, RGB, fitted to a size."""
    pixel_range: PixelRange | None
    """The stored values that became black and white; None if all had 8 bits."""


def decode_rgb(data: bytes, side: int, fit: Fit = center_square, pixel_range: PixelRange | None = None) -> Fitted:
    """Decode the bytes of an image file.

    Small ordinary files are decoded in this process. A helper process decodes the others: the system limits the memory
    and the time of a process, but not those of a thread.

    Args:
        data: content of the file.
        side: size of the result, as ``fit`` understands it. A large JPEG is decoded at a reduced scale.
        fit: one of `climb.images.convert.FITS`.
        pixel_range: see `to_rgb`.

    Raises:
        ImageError: the image cannot be used.
    """
    name = _format_of(data)
    if is_ordinary(name, data):
        with _image_errors():
            image = _open(name, data)
            if image.width * image.height <= SMALL_PIXELS:
                return _fitted(image, side, fit, pixel_range, MAX_MEMORY)
    request = {"side": side, "fit": fit.__name__, "pixel_range": pixel_range}
    try:
        answer, pixels = ask_helper(request, data)
    except HelperEnded as error:
        raise _verdict(error) from error
    if "reason" in answer:
        raise ImageError(answer["reason"], answer["detail"])
    low_high = answer["pixel_range"]
    return Fitted(image=Image.frombytes("RGB", tuple(answer["size"]), pixels), pixel_range=low_high and tuple(low_high))


def decode_here(data: bytes, side: int, fit: Fit, pixel_range: PixelRange | None, *, memory: float) -> Fitted:
    """As `decode_rgb`, in this process. Images that are known to take more bytes than ``memory`` are refused."""
    with _image_errors():
        return _fitted(_open(_format_of(data), data), side, fit, pixel_range, memory)


def damage(error: Exception) -> ImageError:
    """The `ImageError` for an exception of a decoder. Decoders fail in many ways on damaged files."""
    text = f"{type(error).__name__}: {error}"
    return ImageError(TRUNCATED if "truncated" in text.lower() else CORRUPT, text)


@contextlib.contextmanager
def _image_errors() -> Iterator[None]:
    """Turn any exception into an `ImageError`."""
    try:
        yield
    except ImageError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError) as error:
        raise ImageError(TOO_LARGE, str(error) or "decoding takes too much memory") from error
    except Exception as error:
        raise damage(error) from error


def _verdict(ended: HelperEnded) -> ImageError:
    if ended.signal == SIGXCPU:
        return ImageError(TOO_LARGE, f"decoding takes more than {MAX_SECONDS} s of processor time")
    if ended.signal == SIGKILL:  # by the system, which lacks memory, or as it did not answer; not the image's fault
        return ImageError(UNREADABLE, str(ended))
    return ImageError(CORRUPT, str(ended))


def _format_of(data: bytes) -> str:
    """The format by the first bytes; `ImageError` if it is none of `FORMATS`."""
    start = data[:16]
    for name in FORMATS:
        if _accepts(name, start):
            return name
    if not data:
        raise ImageError(NOT_AN_IMAGE, "the file is empty")
    Image.init()
    other = next((name for name in Image.OPEN if _accepts(name, start)), None)
    known = f"allowed are {', '.join(FORMATS)}"
    raise ImageError(NOT_AN_IMAGE, f"{other} is not decoded; {known}" if other else "no decoder knows this format")


def _accepts(name: str, start: bytes) -> bool:
    """Whether Pillow takes a file with these first bytes for one of the format."""
    accept = Image.OPEN[name][1] if name in Image.OPEN else None  # some builds of Pillow lack AVIF
    try:
        return accept is not None and accept(start) is True
    except Exception:  # too short
        return False


def _open(name: str, data: bytes) -> ImageFile.ImageFile:
    """Read the header of an image."""
    try:
        image = FORMATS[name](io.BytesIO(data))
    except SyntaxError as error:
        raise ImageError(NOT_AN_IMAGE, f"no valid {name} header: {error}") from error
    width, height = image.size
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        allowed = f"at most {MAX_PIXELS:,} pixels and {MAX_SIDE:,} a side are decoded"
        raise ImageError(TOO_LARGE, f"{width:,} x {height:,} pixels; {allowed}")
    return image


def _fitted(image: ImageFile.ImageFile, side: int, fit: Fit, pixel_range: PixelRange | None, memory: float) -> Fitted:
    """Load and convert an opened image."""
    pixels = image.width * image.height
    image.draft(None, (2 * side, 2 * side))  # None keeps the mode
    _check_memory(image, max(memory_to_load(image, pixels), memory_to_convert(image, None)), memory)
    image.load()
    turn = exif_turn(image)
    _check_memory(image, memory_to_convert(image, turn), memory)
    used = (pixel_range or value_range(image)) if is_deep(image) else None
    return Fitted(image=fit(to_rgb(image, turn, used), side), pixel_range=used)


def _check_memory(image: Image.Image, needed: float, memory: float) -> None:
    if needed > memory:
        pixels = f"{image.width:,} x {image.height:,} pixels of {image.format} ({image.mode})"
        allowed = f"at most {memory / 1e6:,.0f} MB are allowed for a file of this size"
        raise ImageError(TOO_LARGE, f"{pixels} take {needed / 1e6:,.0f} MB of memory; {allowed}")
