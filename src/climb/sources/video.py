"""Frames of a video file, a camera or a network stream (the extra ``climb-ssl[video]``)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from threading import Event
from typing import Any

import torch

from climb.errors import InputError
from climb.sources.address import without_password
from climb.sources.decode import square
from climb.sources.identity import file_identity
from climb.sources.item import CORRUPT, TOO_LARGE, UNREADABLE, Claim, Pending, Read, Unusable, refuse

VIDEOS = frozenset({".mp4", ".m4v", ".mkv", ".avi", ".mov", ".webm", ".mpg", ".mpeg", ".ts", ".mts", ".wmv", ".flv"})
ADDRESSES = ("rtsp://", "rtsps://", "rtmp://", "http://", "https://", "udp://", "tcp://", "srt://")
CAMERA = "/dev/video"
OPEN_SECONDS, READ_SECONDS = 10.0, 30.0
LONGEST_PAUSE = 60.0  # between two attempts to reach a camera
MOST_FRAME_PIXELS = 8192 * 4320
"""Videos of larger frames are not decoded: converting one takes 10 bytes a pixel, beside what the decoder keeps."""

log = logging.getLogger("climb.sources")


def is_live(text: str) -> bool:
    """Whether a text is the address of a camera or of a network stream."""
    return text.startswith((*ADDRESSES, CAMERA))


def is_video(text: str) -> bool:
    """Whether a path is one of a video file, by its extension."""
    return os.path.splitext(text)[1].lower() in VIDEOS


def require_av() -> Any:
    """The library that reads videos."""
    try:
        import av
    except ImportError:
        raise InputError('videos and cameras need the extra: pip install "climb-ssl[video]"') from None
    return av


def read_video(path: str, *, image_size: int, every: int) -> Read:
    """Every ``every``-th frame of a video file; each frame is known by the file and its number."""
    av = require_av()

    def read(claim: Claim, stop: Event) -> Iterator[Pending]:
        status = os.stat(path)
        try:
            with av.open(path) as container:
                for number, frame in enumerate(_frames(container)):
                    if stop.is_set():
                        return
                    identity = file_identity(path, status, "frame", number)
                    if number % every == 0 and claim(identity):
                        yield _loaded(_picture(frame, image_size), f"{path}#{number}", identity)
        except av.FFmpegError as error:  # what comes after the damage is lost
            yield refuse(path, None, Unusable(CORRUPT, f"the video breaks off: {error}"))
        except Unusable as error:
            yield refuse(path, None, error)

    return read


def read_live(address: str, *, image_size: int, every: int) -> Read:
    """Every ``every``-th frame of a camera or a network stream, from now on. A connection that breaks is made anew."""
    av = require_av()

    def read(claim: Claim, stop: Event) -> Iterator[Pending]:
        number, pause = 0, 1.0
        shown = without_password(address)
        while not stop.is_set():
            try:
                with _open_live(av, address) as container:
                    for frame in _frames(container):
                        if stop.is_set():
                            return
                        if number % every == 0:
                            yield _loaded(_picture(frame, image_size), f"{shown}#{number}", None)
                        number, pause = number + 1, 1.0
                log.warning("%s ended; connecting again in %.0f s", shown, pause)
            except (av.FFmpegError, OSError, Unusable) as error:  # a camera that starts may have no picture yet
                said = str(error).replace(address, shown)
                reason = error.reason if isinstance(error, Unusable) else UNREADABLE
                yield refuse(shown, None, Unusable(reason, f"{said}; connecting again in {pause:.0f} s"))
            stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    return read


def _open_live(av: Any, address: str) -> Any:
    if address.startswith(CAMERA):
        return av.open(address, format="v4l2", timeout=(OPEN_SECONDS, READ_SECONDS))
    options = {"rtsp_transport": "tcp"} if address.startswith("rtsp") else {}
    return av.open(address, options=options, timeout=(OPEN_SECONDS, READ_SECONDS))


def _frames(container: Any) -> Iterator[Any]:
    """The frames of the first picture track; `Unusable` if there is none, or if they are gigantic."""
    if not container.streams.video:
        raise Unusable(CORRUPT, "there is no picture track in it")
    track = container.streams.video[0]
    _check(track.width, track.height)
    track.codec_context.options = {"max_pixels": str(MOST_FRAME_PIXELS)}  # of what the track does not announce
    for frame in container.decode(track):
        _check(frame.width, frame.height)
        yield frame


def _check(width: int, height: int) -> None:
    if width * height > MOST_FRAME_PIXELS:
        raise Unusable(TOO_LARGE, f"frames of {width} x {height} pixels; at most {MOST_FRAME_PIXELS:,} are decoded")


def _picture(frame: Any, image_size: int) -> torch.Tensor:
    """The frame at the model's size: frames as they are, many at a time, would fill the memory."""
    picture = frame.to_image()
    turned = getattr(frame, "rotation", 0)
    return square(picture.rotate(turned, expand=True) if turned else picture, image_size)


def _loaded(image: torch.Tensor, where: str, identity: int | None) -> Pending:
    return Pending(identity=identity, where=where, load=lambda: image)
