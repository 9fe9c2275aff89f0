"""Image files below a folder, once or as they appear."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event

import torch

from climb.datasets.decode import EXTENSIONS
from climb.sources.decode import decode, read_file
from climb.sources.identity import file_identity
from climb.sources.item import UNREADABLE, Claim, Pending, Read, Unusable, refuse
from climb.sources.tree import Tree
from climb.sources.watch import Later, watched


def read_folder(root: str, *, image_size: int, watch: bool) -> Read:
    """The image files below ``root``: sorted within each folder; new ones as they appear, if it is watched."""

    def read(claim: Claim, stop: Event) -> Iterator[Pending]:
        look, later = Tree(root, EXTENSIONS).look, Later()

        def is_new(path: str, status: os.stat_result) -> bool:
            identity = file_identity(path, status)
            return claim.is_new(identity) and later.is_due(identity)

        for path, status in watched(look, is_new, stop) if watch else look(True):
            if stop.is_set():
                return
            yield from _pending(path, status, image_size, claim, later)

    return read


def find_file(path: str, image_size: int, claim: Claim) -> Iterator[Pending]:
    """The image in the file that somebody names, if it is new; word of it if there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:  # also a name that no file can have
        yield refuse(path, None, Unusable(UNREADABLE, str(error)))
        return
    yield from _pending(path, status, image_size, claim, Later())  # named again, it is tried at once


def _pending(path: str, status: os.stat_result, image_size: int, claim: Claim, later: Later) -> Iterator[Pending]:
    identity = file_identity(path, status)
    if not claim(identity):
        return

    def load() -> torch.Tensor:
        try:
            image = load_found(path, status, image_size)
        except Unusable as error:
            if error.reason == UNREADABLE:
                if _is_as_found(path, status):  # changed or gone, it is never found again
                    later.put(identity)
                claim.release(identity)
            raise
        later.forget(identity)
        return image

    yield Pending(identity=identity, where=path, load=load, again=later.tried(identity))


def load_found(path: str, status: os.stat_result, image_size: int) -> torch.Tensor:
    """The image in a file that had this ``status`` when it was found; of another it would bear the wrong name."""
    data = read_file(path)
    if not _is_as_found(path, status):
        raise Unusable(UNREADABLE, "it is not what was found any more")
    return decode(data, image_size)


def _is_as_found(path: str, status: os.stat_result) -> bool:
    try:
        now = os.stat(path)
    except OSError:
        return False
    return (now.st_size, now.st_mtime_ns) == (status.st_size, status.st_mtime_ns)


def load_file(path: str, image_size: int) -> torch.Tensor:
    """The image in a file."""
    return decode(read_file(path), image_size)
