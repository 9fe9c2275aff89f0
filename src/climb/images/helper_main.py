"""The helper process: decodes one image after the other for `climb.images.helper`, each within limits."""

from __future__ import annotations

import contextlib
import math
import resource
import socket
import time
import warnings
from typing import Any

from PIL import AvifImagePlugin

from climb.images.convert import FITS
from climb.images.decode import MAX_MEMORY, MAX_SECONDS, ImageError, decode_here
from climb.images.helper import receive, send

SPARE = 16 * 10**6
"""A helper that keeps more memory than this after an image is not used again."""


def main() -> None:
    """Answer requests until the channel on standard input closes."""
    warnings.simplefilter("ignore")  # Pillow warns about damage
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1  # images are decoded side by side
    _limit(resource.RLIMIT_CORE, 0)
    with socket.socket(fileno=0) as channel:
        send(channel, {})
        at_start, _ = _memory()
        while (message := receive(channel)) is not None:
            request, data = message
            reserved, resident = _memory()
            allowed = MAX_MEMORY - resident - len(data)  # the caller holds the data, too
            _limit(resource.RLIMIT_AS, int(reserved + allowed))
            _limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + MAX_SECONDS)
            answer, pixels = _answer(request, data, allowed)
            _limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)
            del message, data
            send(channel, {**answer, "again": _memory()[0] < at_start + SPARE}, pixels)


def _answer(request: dict[str, Any], data: bytes, memory: float) -> tuple[dict[str, Any], bytes]:
    """The fitted image as size, range and RGB pixels, or the reason why there is none."""
    fit, given = FITS[request["fit"]], request["pixel_range"]
    try:
        decoded = decode_here(data, request["side"], fit, given and tuple(given), memory=memory)
        return {"size": decoded.image.size, "pixel_range": decoded.pixel_range}, decoded.image.tobytes()
    except ImageError as error:
        return {"reason": error.reason, "detail": error.detail}, b""


def _memory() -> tuple[int, int]:
    """Bytes of the address space, and bytes in use."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = file.read().split()
    except OSError:  # not Linux, where the limit has no effect either
        return 0, 0
    return int(pages[0]) * resource.getpagesize(), int(pages[1]) * resource.getpagesize()


def _limit(what: int, value: int) -> None:
    hardest = resource.getrlimit(what)[1]
    with contextlib.suppress(ValueError, OSError):  # a system without this limit
        resource.setrlimit(what, (value if hardest == resource.RLIM_INFINITY else min(value, hardest), hardest))
