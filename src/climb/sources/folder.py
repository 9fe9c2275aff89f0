"""Image files below a folder, once or as they appear."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from threading import Event

import torch

from climb.sources.decode import SUFFIXES, decode, read_file
from climb.sources.identity import file_identity
from climb.sources.item import UNREADABLE, Claim, Pending, Read, Unusable, refuse
from climb.sources.watch import Found, watched


def read_folder(root: str, *, image_size: int, watch: bool) -> Read:
    """The image files below ``root``: sorted within each folder; new ones as they appear, if it is watched."""

    def read(claim: Claim, stop: Event) -> Iterator[Pending]:
        look = partial(files_below, root, SUFFIXES)
        for path, status in watched(look, stop) if watch else look():
            if stop.is_set():
                return
            identity = file_identity(path, status)
            if claim(identity):
                yield Pending(identity=identity, where=path, load=partial(load_file, path, image_size))

    return read


def find_file(path: str, image_size: int, claim: Claim) -> Iterator[Pending]:
    """The image in the file that somebody names, if it is new; word of it if there is none."""
    try:
        identity = file_identity(path, os.stat(path))
    except (OSError, ValueError) as error:  # also a name that no file can have
        yield refuse(path, None, Unusable(UNREADABLE, str(error)))
        return
    if claim(identity):
        yield Pending(identity=identity, where=path, load=partial(load_file, path, image_size))


def load_file(path: str, image_size: int) -> torch.Tensor:
    """The image in a file."""
    return decode(read_file(path), image_size)


def files_below(root: str, extensions: frozenset[str]) -> Iterator[Found]:
    """Files with such extensions, with their status, the names of one folder at a time in memory.

    Hidden files and folders are skipped, and what vanishes while one looks. Links to folders are not followed.
    """
    try:
        with os.scandir(root) as entries:
            names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError:
        return
    for name, is_folder in names:
        if name.startswith("."):
            continue
        path = os.path.join(root, name)
        if is_folder:
            yield from files_below(path, extensions)
        elif os.path.splitext(name)[1].lower() in extensions:
            try:
                yield path, os.stat(path)
            except OSError:
                continue
