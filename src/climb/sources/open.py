"""Open a source by its address, as typed on the command line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from climb.arguments import check_value
from climb.errors import InputError
from climb.images.convert import as_pixel_range
from climb.registry import load_plugins
from climb.sources.in_memory import read_iterable
from climb.sources.source import Options, Source, SourceKind, allowed_addresses, find_kind

ITERABLE = SourceKind(help="an iterable", takes=lambda address: False, open=read_iterable, rereadable=False)

_SCHEME = re.compile(r"[a-z][\w+.-]*://", re.IGNORECASE)
_LOGIN = re.compile(r"([^/?#@:]*):[^/?#]*@")
# A password with an unescaped slash. Digits alone before the slash are a port.
_UNESCAPED_LOGIN = re.compile(r"(?!\[)([^/?#@:]*):(?!\d*(?:[/?#]|$)).*@", re.DOTALL)
# Cameras take passwords in the query or in the path.
_PARAMETER = re.compile(
    r"([\w.-]*(?:pas|pwd|psw|secret|token|auth|key|sign|(?<![a-z])pw)[\w.-]*=)[^&;#]*", re.IGNORECASE
)


def open_source(
    images: str | Path | Iterable[Any],
    *,
    image_size: int,
    watch: bool = False,
    every: int = 1,
    workers: int = 2,
    pixel_range: Sequence[float] | None = None,
) -> Source:
    """The source of images at an address, or of any iterable of images.

    Args:
        images: a folder, an image file, a tar shard or a pattern of shards, a video file, a camera or stream address,
            ``hf:OWNER/NAME``, ``-``; or an iterable of pictures, arrays, paths or bytes.
        image_size: side of the images.
        watch: follow a folder, or a pattern of shards: do not end, yield new files as they appear.
        every: yield every n-th frame of a video or camera.
        workers: threads that load images.
        pixel_range: values that become black and white in images of more than 8 bits; None for the range of each.

    Raises:
        InputError: there is no source at the address, or an option does not apply to it.
    """
    for option, value in (("every", every), ("workers", workers), ("image_size", image_size)):
        check_value(option, value, int, least=1)
    kind, name = ITERABLE, ITERABLE.help
    if isinstance(images, str | Path):
        images = os.path.expanduser(images)
        kind, name = _find_kind(images), without_password(images)
    elif not hasattr(images, "__iter__") and not hasattr(images, "__getitem__"):
        given = type(images).__name__
        raise InputError(f"{allowed_addresses()}, or, in Python, any iterable of images; given {given}")
    if watch and not kind.watchable:
        raise InputError(f"watch follows a folder or a pattern of tar shards; given {name}")
    options = Options(image_size=image_size, watch=watch, every=every, pixel_range=as_pixel_range(pixel_range))
    return Source(
        kind.open(images, options),
        name=name,
        rereadable=kind.rereadable,
        endless=kind.endless or watch,
        live=kind.live,
        workers=workers,
    )


def without_password(text: str) -> str:
    """The text with "..." in place of passwords in an address, for logs, journals and pages.

    >>> without_password("rtsp://admin:secret@10.0.0.7:554/main"), without_password("photos/a:b@c")
    ('rtsp://admin:...@10.0.0.7:554/main', 'photos/a:b@c')
    >>> without_password("http://camera/video.mjpg?user=admin&pwd=secret")
    'http://camera/video.mjpg?user=admin&pwd=...'
    """
    scheme = _SCHEME.search(text)
    if scheme is None:
        return text
    before, rest = text[: scheme.end()], text[scheme.end() :]
    login = _LOGIN.match(rest) or _UNESCAPED_LOGIN.match(rest)
    if login is not None:
        before, rest = f"{before}{login[1]}:...@", rest[login.end() :]
    return before + _PARAMETER.sub(r"\1...", rest)


def _find_kind(address: str) -> SourceKind:
    """The kind of source that takes an address, built in or of an installed package."""
    kind, broken = find_kind(address), list[str]()
    if kind is None:
        broken = load_plugins()
        kind = find_kind(address)
    if kind is not None:
        return kind
    shown, exists = without_password(address), os.path.exists(address)
    if {"*", "?"} & set(address) and not exists:
        advice = f"give the folder, or pipe their paths: ls {shown} | climb ..., with - in place of the pattern"
        only = "only tar shards are given by a pattern (shards/*.tar)"
        raise InputError(f"'{shown}' is a pattern, and {only}. For images {advice}")
    message = f"'{shown}' {'is a file of another kind' if exists else 'does not exist'}. {allowed_addresses()}"
    raise InputError("\n".join([message, *(f"A source may be missing because {reason}" for reason in broken)]))
