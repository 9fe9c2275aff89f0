"""Image files: below a folder, by name, or as paths on standard input."""

from __future__ import annotations

import codecs
import os
import select
import sys
from collections.abc import Iterator
from threading import Event

import torch

from climb.errors import InputError
from climb.images.decode import UNREADABLE, ImageError, read_image_file
from climb.images.find import FolderScanner, has_image_extension, version
from climb.images.tensors import Decoder
from climb.sources.item import Pending, Read, SeenFilter, failed, file_identity
from climb.sources.source import Options, register
from climb.sources.watch import RetrySchedule, watched

STANDARD_INPUT = "-"
LONGEST_LINE = 2**16  # bytes; no path is longer


@register("folder", help="a folder", takes=os.path.isdir, watchable=True)
def read_folder(root: str, options: Options) -> Read:
    """The image files below ``root``, sorted within each folder. If watched, also new ones as they appear."""

    def read(seen: SeenFilter, stop: Event) -> Iterator[Pending]:
        scan, retries = FolderScanner(root).scan, RetrySchedule()

        def is_new(path: str, status: os.stat_result) -> bool:
            identity = file_identity(path, status)
            return seen.is_new(identity) and retries.is_due(identity)

        for path, status in watched(scan, is_new, stop) if options.watch else scan(True):
            if stop.is_set():
                return
            yield from _pending(path, status, options.decoder, seen, retries)

    return read


@register(
    "image-file", help="an image file", takes=lambda address: has_image_extension(address) and os.path.isfile(address)
)
def read_one_file(path: str, options: Options) -> Read:
    """The image in one file."""
    return lambda seen, stop: find_file(path, options.decoder, seen)


@register(
    "standard-input",
    help="- for paths on standard input",
    takes=lambda address: address == STANDARD_INPUT,
    rereadable=False,
    endless=True,
)
def read_standard_input(address: str, options: Options) -> Read:
    """The image files whose paths arrive on standard input, one a line."""
    if sys.stdin is None:
        raise InputError("standard input is closed; pipe paths into it, one a line")
    descriptor = sys.stdin.fileno()

    def read(seen: SeenFilter, stop: Event) -> Iterator[Pending]:
        for line in lines(descriptor, stop):
            yield from find_file(os.fsdecode(line), options.decoder, seen)

    return read


def find_file(path: str, decoder: Decoder, seen: SeenFilter) -> Iterator[Pending]:
    """The image in one file, if it is new; a notice if the file does not exist."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:  # ValueError: the path contains a null byte
        yield failed(path, None, ImageError(UNREADABLE, str(error)))
        return
    yield from _pending(path, status, decoder, seen, RetrySchedule())  # a path given again is tried at once


def _pending(
    path: str, status: os.stat_result, decoder: Decoder, seen: SeenFilter, retries: RetrySchedule
) -> Iterator[Pending]:
    identity = file_identity(path, status)
    if not seen(identity):
        return

    def load() -> torch.Tensor:
        try:
            data = read_image_file(path)
            if not _is_unchanged(path, status):  # other content would get the wrong identity
                raise ImageError(UNREADABLE, "the file has changed since it was found")
            image = decoder(data, path)
        except ImageError as error:
            if error.reason == UNREADABLE:
                if _is_unchanged(path, status):  # a changed or removed file is not found under this identity again
                    retries.put(identity)
                seen.release(identity)
            raise
        retries.pop(identity, None)
        return image

    yield Pending(identity=identity, where=path, load=load, again=identity in retries)


def _is_unchanged(path: str, status: os.stat_result) -> bool:
    try:
        return version(os.stat(path)) == version(status)
    except OSError:
        return False


def lines(descriptor: int, stop: Event) -> Iterator[bytes]:
    """Lines without their ends, as they arrive, without empty ones."""
    # Not sys.stdin: a thread that waits inside it cannot be stopped, and makes Python fail at exit.
    rest, first = b"", True
    while rest or not stop.is_set():  # finish a half line: the next reader could not make sense of the rest
        if not select.select([descriptor], [], [], 0.2)[0]:
            continue
        data = os.read(descriptor, 1 if stop.is_set() else 4096)  # one byte: read no further than this line
        *whole, rest = (rest + data).split(b"\n") if data else [rest, b""]
        if len(rest) > LONGEST_LINE:
            raise InputError(f"standard input has a line of more than {LONGEST_LINE:,} bytes; give one path a line")
        if first and whole:
            whole[0], first = whole[0].removeprefix(codecs.BOM_UTF8), False  # some editors write a byte order mark
        yield from (line.rstrip(b"\r") for line in whole if line.strip())
        if not data:
            return
