"""A source by its name, as one types it on the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from climb.datasets.decode import EXTENSIONS
from climb.errors import InputError
from climb.sources.address import without_password
from climb.sources.folder import read_folder
from climb.sources.hugging_face import PARQUET, PREFIX, read_hugging_face
from climb.sources.iterable import read_iterable
from climb.sources.source import Source
from climb.sources.standard_input import read_paths
from climb.sources.tar import SHARDS, is_shard, read_shards, shards_matching
from climb.sources.video import is_live, is_video, read_live, read_video

STANDARD_INPUT = "-"
ITERABLE = "an iterable"
ALLOWED = (
    "a folder, an image file, a tar shard or a pattern of them (shards/*.tar), a video file, a camera (/dev/video0), "
    "an address (rtsp://...), hf:OWNER/NAME, or - for paths on standard input"
)


def open_source(
    images: str | Path | Iterable[Any], *, image_size: int, watch: bool = False, every: int = 1, workers: int = 2
) -> Source:
    """The source of images that a text names, or any iterable of them.

    Args:
        images: a folder, an image file, a tar shard or a pattern of shards, a video file, a camera or stream address,
            ``hf:OWNER/NAME``, ``-``; or an iterable of pictures, arrays, paths or bytes.
        image_size: side of the images that come out.
        watch: follow a folder, or a pattern of shards: do not end, take new files as they appear.
        every: take every n-th frame of a video or camera.
        workers: threads that load images.

    Raises:
        InputError: there is nothing by that name, or an option does not go with it.
    """
    if every < 1 or workers < 1:
        raise InputError(f"every and workers must be at least 1; given {every} and {workers}")
    common: dict[str, Any] = {"workers": workers}
    if not isinstance(images, str | Path):
        _only_of_folders(watch, ITERABLE)
        if not hasattr(images, "__iter__") and not hasattr(images, "__getitem__"):
            raise InputError(f"{ALLOWED}, or, in Python, any iterable of images; given {type(images).__name__}")
        read = read_iterable(images, image_size=image_size)
        return Source(read, name=ITERABLE, rereadable=False, **common)
    text = os.path.expanduser(images)
    common["name"] = without_password(text)
    if os.path.isdir(text):
        return Source(read_folder(text, image_size=image_size, watch=watch), rereadable=True, endless=watch, **common)
    if is_shard(text):
        _at_least_one(text, watch)
        return Source(read_shards(text, image_size=image_size, watch=watch), rereadable=True, endless=watch, **common)
    _only_of_folders(watch, text)
    if text == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputError("standard input is closed; pipe paths into it, one a line")
        read = read_paths(sys.stdin.fileno(), image_size=image_size)
        return Source(read, rereadable=False, endless=True, **common)
    if text.startswith(PREFIX):
        return Source(read_hugging_face(text, image_size=image_size), rereadable=True, **common)
    if is_live(text):
        if text.startswith("/") and not os.path.exists(text):
            raise InputError(f"there is no camera at {text}; it must be there when learning begins")
        read = read_live(text, image_size=image_size, every=every)
        return Source(read, rereadable=False, endless=True, live=True, **common)
    if is_video(text) and os.path.isfile(text):
        return Source(read_video(text, image_size=image_size, every=every), rereadable=True, **common)
    if os.path.splitext(text)[1].lower() in EXTENSIONS and os.path.isfile(text):
        return Source(read_iterable([text], image_size=image_size), rereadable=True, **common)
    if {"*", "?"} & set(text) and not os.path.exists(text) and not is_video(text):
        raise InputError(
            f"'{text}' is a pattern, and patterns name tar shards: they end in {', '.join(SHARDS)}. For images give "
            f"the folder, or pipe their paths: ls {text} | climb ..., with - in place of the pattern"
        )
    if text.lower().endswith(PARQUET) and os.path.isfile(text):
        raise InputError(f"'{text}' is a Parquet file; the images in it are read as a dataset. Type: {PREFIX}{text}")
    reason = "is a file of another kind" if os.path.exists(text) else "does not exist"
    raise InputError(f"'{without_password(text)}' {reason}. Allowed: {ALLOWED}")


def _only_of_folders(watch: bool, text: str) -> None:
    if watch:
        path = text not in (STANDARD_INPUT, ITERABLE) and not text.startswith(PREFIX) and not is_live(text)
        missing = ", which does not exist" if path and not os.path.exists(text) else ""
        given = without_password(text)
        raise InputError(f"watch follows a folder or a pattern of tar shards; given {given}{missing}")


def _at_least_one(text: str, watch: bool) -> None:
    if not watch and next(shards_matching(text), None) is None:
        braces = " (* and ? stand for what differs; {..} means nothing here)" if "{" in text else ""
        raise InputError(f"no tar shard matches '{text}'{braces}. Allowed: {ALLOWED}")
