"""Tar shards, read from front to back: nothing is extracted to disk."""

from __future__ import annotations

import glob
import os
import tarfile
import time
from collections.abc import Iterator
from functools import partial
from threading import Event
from typing import IO

from climb.sources.at_hand import pending_bytes
from climb.sources.decode import MOST_BYTES, SUFFIXES
from climb.sources.identity import file_identity
from climb.sources.item import CORRUPT, TOO_LARGE, UNREADABLE, Claim, Pending, Read, Unusable, refuse
from climb.sources.watch import Found, watched

ABANDONED_SECONDS = 60.0
"""A watched shard without an end that nobody has written to for so long is read as it is."""
SHARDS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def is_shard(text: str) -> bool:
    """Whether a name, or a pattern of names, is one of tar shards."""
    return text.lower().endswith(SHARDS)


def shards_matching(pattern: str) -> Iterator[Found]:
    """The shards that a pattern names, sorted by path."""
    for path in [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True)):
        try:
            yield path, os.stat(path)
        except OSError:  # removed meanwhile
            continue


def read_shards(pattern: str, *, image_size: int, watch: bool) -> Read:
    """The images in the shards; new shards as they appear, if they are watched."""

    def read(claim: Claim, stop: Event) -> Iterator[Pending]:
        look = partial(shards_matching, pattern)
        finished: set[int] = set()  # a watched shard is not read at every look
        for path, status in watched(look, stop) if watch else look():
            shard = file_identity(path, status)
            if shard not in finished and not (watch and _may_grow(path, status)):
                finished.add(shard)
                yield from _images_in(path, status, image_size, claim)

    return read


def _may_grow(path: str, status: os.stat_result) -> bool:
    """Whether somebody may be adding to a shard, slowly: grown, it would be another one, and be learned a second time.

    A finished archive ends in zeros. One that does not, or is compressed, is left alone until it has been for a while.
    """
    if abs(time.time() - status.st_mtime) >= ABANDONED_SECONDS:
        return False
    try:
        with open(path, "rb") as handle:
            handle.seek(max(0, status.st_size - 2 * tarfile.BLOCKSIZE))
            return handle.read() != tarfile.NUL * 2 * tarfile.BLOCKSIZE
    except OSError:  # word of it comes from reading the shard
        return False


def _images_in(path: str, status: os.stat_result, image_size: int, claim: Claim) -> Iterator[Pending]:
    try:
        with tarfile.open(path) as shard:
            while (member := shard.next()) is not None:
                shard.members = []  # type: ignore[attr-defined]  # it remembers every member: that would grow with the shard
                if not member.isfile() or os.path.splitext(member.name)[1].lower() not in SUFFIXES:
                    continue
                identity = file_identity(path, status, member.offset_data, member.name)
                if not claim(identity):
                    continue
                where = f"{path}#{member.name}"
                if member.size > MOST_BYTES:
                    detail = f"{member.size:,} bytes; at most {MOST_BYTES:,} are read"
                    yield refuse(where, identity, Unusable(TOO_LARGE, detail))
                    continue
                content = shard.extractfile(member)
                data = b"" if content is None else content.read()
                yield pending_bytes(data, image_size, where=where, identity=identity)
            _check_end(shard)
    except (tarfile.TarError, EOFError, ValueError) as error:
        # What comes after the damage is lost; the shard's own identity is not claimed, a repaired one is another.
        yield refuse(path, None, Unusable(CORRUPT, f"the shard breaks off: {error}"))
    except OSError as error:
        yield refuse(path, None, Unusable(UNREADABLE, str(error)))


def _check_end(shard: tarfile.TarFile) -> None:
    """Where reading stopped there must be the end of the file or a block of zeros: the library takes any damaged
    header but the first for the end."""
    file: IO[bytes] = shard.fileobj  # type: ignore[assignment]  # open as long as the shard is
    file.seek(shard.offset)
    rest = file.read(tarfile.BLOCKSIZE)
    if rest and rest != tarfile.NUL * tarfile.BLOCKSIZE:
        raise tarfile.ReadError(f"no valid header at byte {shard.offset:,}")
