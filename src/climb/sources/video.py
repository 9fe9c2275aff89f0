"""Frames of a video file, a camera or a network stream. Needs the extra ``climb-ssl[video]``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from threading import Event
from typing import Any

import torch

from climb.errors import InputError
from climb.images.decode import CORRUPT, TOO_LARGE, UNREADABLE, ImageError
from climb.images.tensors import Decoder
from climb.sources.item import Pending, Read, SeenFilter, failed, file_identity, loaded
from climb.sources.open import without_password
from climb.sources.source import Options, import_extra, register

VIDEOS = frozenset({".mp4", ".m4v", ".mkv", ".avi", ".mov", ".webm", ".mpg", ".mpeg", ".ts", ".mts", ".wmv", ".flv"})
ADDRESSES = ("rtsp://", "rtsps://", "rtmp://", "http://", "https://", "udp://", "tcp://", "srt://")
CAMERA = "/dev/video"
OPEN_SECONDS, READ_SECONDS = 10.0, 30.0
LONGEST_PAUSE = 60.0  # seconds between two attempts to connect
MAX_FRAME_PIXELS = 8192 * 4320
"""Larger frames are not decoded. Conversion takes 10 bytes a pixel, besides the decoder's buffers."""

log = logging.getLogger("climb.sources")


def is_video(text: str) -> bool:
    """Whether a path has the extension of a video file."""
    return os.path.splitext(text)[1].lower() in VIDEOS


@register("video", help="a video file", takes=lambda address: is_video(address) and os.path.isfile(address))
def read_video(path: str, options: Options) -> Read:
    """Every n-th frame of a video file, identified by the file and its number."""
    av = import_extra("av", "videos and cameras", "video")

    def read(seen: SeenFilter, stop: Event) -> Iterator[Pending]:
        status = os.stat(path)
        try:
            with av.open(path) as container:
                for number, frame in enumerate(_frames(container)):
                    if stop.is_set():
                        return
                    identity = file_identity(path, status, "frame", number)
                    if number % options.every == 0 and seen(identity):
                        yield loaded(f"{path}#{number}", identity, _to_tensor(frame, options.decoder))
        except av.FFmpegError as error:  # the frames after the damage are lost
            yield failed(path, None, ImageError(CORRUPT, f"the video breaks off: {error}"))
        except ImageError as error:
            yield failed(path, None, error)

    return read


@register(
    "camera",
    help="a camera (/dev/video0), an address (rtsp://...)",
    takes=lambda address: address.startswith((*ADDRESSES, CAMERA)),
    rereadable=False,
    endless=True,
    live=True,
)
def read_live(address: str, options: Options) -> Read:
    """Every n-th frame of a camera or a network stream, from now on. Reconnects if the connection breaks."""
    if address.startswith("/") and not os.path.exists(address):
        raise InputError(f"there is no camera at {address}; it must be there when learning begins")
    av = import_extra("av", "videos and cameras", "video")

    def read(seen: SeenFilter, stop: Event) -> Iterator[Pending]:
        number, pause = 0, 1.0
        shown = without_password(address)
        while not stop.is_set():
            try:
                with _open_live(av, address) as container:
                    for frame in _frames(container):
                        if stop.is_set():
                            return
                        if number % options.every == 0:
                            yield loaded(f"{shown}#{number}", None, _to_tensor(frame, options.decoder))
                        number, pause = number + 1, 1.0
                log.warning("%s ended; connecting again in %.0f s", shown, pause)
            except (av.FFmpegError, OSError, ImageError) as error:  # a camera that starts may have no picture yet
                message = str(error).replace(address, shown)
                reason = error.reason if isinstance(error, ImageError) else UNREADABLE
                yield failed(shown, None, ImageError(reason, f"{message}; connecting again in {pause:.0f} s"))
            stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    return read


def _open_live(av: Any, address: str) -> Any:
    if address.startswith(CAMERA):
        return av.open(address, format="v4l2", timeout=(OPEN_SECONDS, READ_SECONDS))
    options = {"rtsp_transport": "tcp"} if address.startswith("rtsp") else {}
    return av.open(address, options=options, timeout=(OPEN_SECONDS, READ_SECONDS))


def _frames(container: Any) -> Iterator[Any]:
    """The frames of the first picture track; `ImageError` if there is none, or if they are too large."""
    if not container.streams.video:
        raise ImageError(CORRUPT, "the file has no picture track")
    track = container.streams.video[0]
    _check_size(track.width, track.height)
    track.codec_context.options = {"max_pixels": str(MAX_FRAME_PIXELS)}  # for frames larger than the track announces
    for frame in container.decode(track):
        _check_size(frame.width, frame.height)
        yield frame


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_FRAME_PIXELS:
        raise ImageError(TOO_LARGE, f"frames of {width} x {height} pixels; at most {MAX_FRAME_PIXELS:,} are decoded")


def _to_tensor(frame: Any, decoder: Decoder) -> torch.Tensor:
    """The frame at the model's size. It is converted at once: many full frames would fill the memory."""
    picture = frame.to_image()
    angle = getattr(frame, "rotation", 0)
    return decoder.picture(picture.rotate(angle, expand=True) if angle else picture, "a frame")
