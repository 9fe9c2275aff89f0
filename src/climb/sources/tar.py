"""Tar shards, read from front to back: nothing is extracted to disk."""

from __future__ import annotations

import errno
import glob
import hashlib
import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from threading import Event
from typing import IO

from climb.datasets.decode import EXTENSIONS
from climb.sources.at_hand import pending_bytes
from climb.sources.decode import MOST_BYTES
from climb.sources.identity import digest, file_identity
from climb.sources.item import CORRUPT, TOO_LARGE, UNREADABLE, Claim, Pending, Read, Unusable, refuse
from climb.sources.watch import Found, Later, settled_seconds, watched

HEAD_BYTES = 4096  # of an image in a shard, by which it is told from another one in its place
ABANDONED_SECONDS = 60.0
"""A watched shard without an end that nobody has written to for so long is read as it is."""
SHARDS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def is_shard(text: str) -> bool:
    """Whether a name, or a pattern of names, is one of tar shards."""
    return text.lower().endswith(SHARDS)


def shards_matching(pattern: str) -> Iterator[Found]:
    """The shards that a pattern names, sorted by path, each once: two ``**`` in it find a path several times."""
    for path in [pattern] if os.path.exists(pattern) else sorted(set(glob.glob(pattern, recursive=True))):
        try:
            yield path, os.stat(path)
        except OSError:  # removed meanwhile
            continue


def read_shards(pattern: str, *, image_size: int, watch: bool) -> Read:
    """The images in the shards; new shards as they appear, if they are watched."""

    def read(claim: Claim, stop: Event) -> Iterator[Pending]:
        later = Later()
        finished: set[int] = set()  # a watched shard is not read at every look

        def is_new(path: str, status: os.stat_result) -> bool:
            shard = file_identity(path, status)
            return shard not in finished and later.is_due(shard)

        def look(thorough: bool) -> Iterator[Found]:
            return shards_matching(pattern)

        for path, status in watched(look, is_new, stop, _needed_seconds) if watch else look(True):
            if stop.is_set():
                return
            shard = file_identity(path, status)
            try:
                yield from _images_in(path, status, image_size, claim, stop)
            except OSError as error:  # the rest is read another time; what came from it is known
                yield replace(refuse(path, None, Unusable(UNREADABLE, str(error))), again=later.tried(shard))
                later.put(shard)
            else:
                later.forget(shard)
                finished.add(shard)

    return read


def _needed_seconds(path: str, status: os.stat_result) -> float:
    """How long a shard must have been as it is, so that it is read once and not in every state of its growth.

    A finished archive ends in zeros. One that does not, or is compressed, may have a slow writer.
    """
    try:
        with open(path, "rb") as handle:
            handle.seek(max(0, status.st_size - 2 * tarfile.BLOCKSIZE))
            ended = handle.read() == tarfile.NUL * 2 * tarfile.BLOCKSIZE
    except OSError:  # word of it comes from reading the shard
        ended = True
    return settled_seconds(path, status) if ended else ABANDONED_SECONDS


def _member_identity(path: str, member: tarfile.TarInfo, head: bytes) -> int:
    """Its place in the archive, what that says of it, and how it begins: a shard that others are added to keeps those
    that were learned, and one that is written anew does not, even if its writer gives all images one time and size."""
    began = hashlib.blake2b(head, digest_size=8).hexdigest()
    return digest(os.path.abspath(path), member.name, member.offset_data, member.size, str(member.mtime), began)


def _images_in(path: str, status: os.stat_result, image_size: int, claim: Claim, stop: Event) -> Iterator[Pending]:
    try:
        with tarfile.open(path) as shard:
            _check_same(shard, status)
            while (member := shard.next()) is not None:
                shard.members = []  # type: ignore[attr-defined]  # it remembers every member: that would grow with the shard
                if stop.is_set():  # here, too: of images that are all known none is given to anybody who could stop it
                    return
                if not member.isfile() or not _is_image(member.name):
                    continue
                content = shard.extractfile(member)
                head = b"" if content is None else content.read(HEAD_BYTES)
                identity = _member_identity(path, member, head)
                if not claim(identity):
                    continue
                where = f"{path}#{member.name}"
                if member.size > MOST_BYTES:
                    detail = f"{member.size:,} bytes; at most {MOST_BYTES:,} are read"
                    yield refuse(where, identity, Unusable(TOO_LARGE, detail))
                    continue
                try:
                    data = head if content is None else head + content.read()
                    _check_same(shard, status)
                except Exception:
                    claim.release(identity)
                    raise
                yield pending_bytes(data, image_size, where=where, identity=identity)
            _check_end(shard)
    except (tarfile.TarError, EOFError, ValueError, OSError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the drive; without a number, of a decompressor
            raise
        # What comes after the damage is lost. A repaired shard is another one; this one is counted once.
        damage = file_identity(path, status, "breaks off")
        if claim(damage):
            said = " ".join(str(error).split())  # the library lists all that it tried, line by line
            yield refuse(path, damage, Unusable(CORRUPT, f"the shard breaks off: {said}"))


def _is_image(name: str) -> bool:
    """By its extension, if it is not hidden: macOS puts a ``._a.png`` beside each ``a.png``.

    >>> [_is_image(name) for name in ("./a/b.PNG", "../b.png", "a/._b.png", ".a/b.png", "b.json")]
    [True, True, False, False, False]
    """
    hidden = any(part.startswith(".") and part not in (".", "..") for part in name.split("/"))
    return not hidden and os.path.splitext(name)[1].lower() in EXTENSIONS


def _check_same(shard: tarfile.TarFile, status: os.stat_result) -> None:
    """What was opened must be what was found, and still be: its images would bear the names of another's."""
    file: IO[bytes] = shard.fileobj  # type: ignore[assignment]  # open as long as the shard is
    now = os.fstat(file.fileno())
    if (now.st_size, now.st_mtime_ns) != (status.st_size, status.st_mtime_ns):
        raise OSError(errno.ESTALE, "it is not what was found any more")


def _check_end(shard: tarfile.TarFile) -> None:
    """Where reading stopped there must be the end of the file or a block of zeros: the library takes any damaged
    header but the first for the end."""
    file: IO[bytes] = shard.fileobj  # type: ignore[assignment]  # open as long as the shard is
    file.seek(shard.offset)
    rest = file.read(tarfile.BLOCKSIZE)
    if rest and rest != tarfile.NUL * tarfile.BLOCKSIZE:
        raise tarfile.ReadError(f"no valid header at byte {shard.offset:,}")
