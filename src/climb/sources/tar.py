"""Tar shards, read from front to back. Nothing is extracted to disk."""

from __future__ import annotations

import bz2
import errno
import glob
import gzip
import hashlib
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from threading import Event
from typing import IO, Any, cast

from climb.errors import InputError
from climb.images.decode import CORRUPT, MAX_FILE_BYTES, TOO_LARGE, UNREADABLE, ImageError
from climb.images.find import FoundFile, has_image_extension, version
from climb.images.tensors import Decoder
from climb.sources.in_memory import pending_bytes
from climb.sources.item import Pending, Read, SeenFilter, digest, failed, file_identity
from climb.sources.open import without_password
from climb.sources.source import Options, allowed_addresses, register
from climb.sources.watch import RetrySchedule, settled_seconds, watched

HEAD_BYTES = 4096  # of an image in a shard, to tell it from another image in its place
ABANDONED_SECONDS = 60.0
"""A watched shard without an end is read as it is after this time without a write."""
MAX_HEADER_BYTES = 2**20
"""Headers of a member are read up to this size: its name, link and records."""
SHARDS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

_COMPRESSED: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open, b"\x5d\0\0": lzma.open
}  # fmt: skip
"""How to open an archive by its first bytes."""


def shards_matching(pattern: str) -> Iterator[FoundFile]:
    """The shards that match a pattern, sorted by path."""
    # A set: a pattern with two ``**`` matches a path several times.
    for path in [pattern] if os.path.exists(pattern) else sorted(set(glob.glob(pattern, recursive=True))):
        try:
            yield path, os.stat(path)
        except OSError:  # removed meanwhile
            continue


@register(
    "tar",
    help="a tar shard or a pattern of them (shards/*.tar)",
    takes=lambda address: address.lower().endswith(SHARDS),
    watchable=True,
)
def read_shards(pattern: str, options: Options) -> Read:
    """The images in the shards. If watched, also new shards as they appear."""
    if not options.watch and next(shards_matching(pattern), None) is None:
        braces = " (only * and ? are wildcards; {..} is not)" if "{" in pattern else ""
        raise InputError(f"no tar shard matches '{without_password(pattern)}'{braces}. {allowed_addresses()}")

    def read(seen: SeenFilter, stop: Event) -> Iterator[Pending]:
        retries = RetrySchedule()
        finished: set[int] = set()  # so that a watched shard is not read at every scan

        def is_new(path: str, status: os.stat_result) -> bool:
            shard = file_identity(path, status)
            return shard not in finished and retries.is_due(shard)

        def scan(full: bool) -> Iterator[FoundFile]:
            return shards_matching(pattern)

        for path, status in watched(scan, is_new, stop, _settled_seconds) if options.watch else scan(True):
            if stop.is_set():
                return
            shard = file_identity(path, status)
            try:
                yield from _images_in(path, status, options.decoder, seen, stop)
            except OSError as error:  # the rest is read later; the images read so far are marked as seen
                yield failed(path, None, ImageError(UNREADABLE, str(error)), again=shard in retries)
                retries.put(shard)
            else:
                retries.pop(shard, None)
                finished.add(shard)

    return read


def _settled_seconds(path: str, status: os.stat_result) -> float:
    """How long a shard must be unchanged before it is read, so that a growing shard is read only once.

    A complete archive ends in zeros. One that does not, or is compressed, may have a slow writer.
    """
    try:
        with open(path, "rb") as handle:
            handle.seek(max(0, status.st_size - 2 * tarfile.BLOCKSIZE))
            ended = handle.read() == tarfile.NUL * 2 * tarfile.BLOCKSIZE
    except OSError:  # reading the shard will report it
        ended = True
    return settled_seconds(path, status) if ended else ABANDONED_SECONDS


def _member_identity(path: str, member: tarfile.TarInfo, head: bytes) -> int:
    """Identity by place in the archive, header and first bytes.

    A shard that grows keeps its learned images. A rewritten shard does not, even if its writer gives all images one
    time and size.
    """
    start = hashlib.blake2b(head, digest_size=8).hexdigest()
    return digest(os.path.abspath(path), member.name, member.offset_data, member.size, str(member.mtime), start)


def _images_in(path: str, status: os.stat_result, decoder: Decoder, seen: SeenFilter, stop: Event) -> Iterator[Pending]:
    try:
        with _open(path) as opened, tarfile.TarFile(fileobj=cast(IO[bytes], file := _HeaderFile(opened))) as shard:
            _check_same(opened, status)
            while (member := _next(shard, file)) is not None:
                if stop.is_set():  # also here: a shard of seen images yields nothing at which the caller could stop
                    return
                if not member.isfile() or not _is_image_member(member.name):
                    continue
                content = shard.extractfile(member)
                assert content is not None  # it is for members that are no files
                head = content.read(HEAD_BYTES)
                identity = _member_identity(path, member, head)
                if not seen(identity):
                    continue
                where = f"{path}#{member.name}"
                if member.size > MAX_FILE_BYTES:
                    detail = f"{member.size:,} bytes; at most {MAX_FILE_BYTES:,} are read"
                    yield failed(where, identity, ImageError(TOO_LARGE, detail))
                    continue
                try:
                    data = head + content.read()
                    _check_same(opened, status)
                except Exception:
                    seen.release(identity)
                    raise
                yield pending_bytes(data, decoder, where=where, identity=identity)
            _check_end(shard, opened)
    except (tarfile.TarError, EOFError, ValueError, OSError, RecursionError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # errors of decompressors have no number
            raise
        # The images after the damage are lost. The damage has an identity, so that it is counted once.
        damage = file_identity(path, status, "breaks off")
        if seen(damage):
            message = " ".join(f"the shard breaks off: {error}".split())  # the library's message has many lines
            yield failed(path, damage, ImageError(CORRUPT, message))


def _is_image_member(name: str) -> bool:
    """Whether a member is an image file. Hidden files are not: macOS puts a ``._a.png`` beside each ``a.png``.

    >>> [_is_image_member(name) for name in ("./a/b.PNG", "../b.png", "a/._b.png", ".a/b.png", "b.json")]
    [True, True, False, False, False]
    """
    hidden = any(part.startswith(".") and part not in (".", "..") for part in name.split("/"))
    return not hidden and has_image_extension(name)


def _open(path: str) -> IO[bytes]:
    """A shard, decompressed."""
    with open(path, "rb") as file:
        start = file.read(6)
    kind = next((kind for magic, kind in _COMPRESSED.items() if start.startswith(magic)), open)
    return cast(IO[bytes], kind(path, "rb"))


class _HeaderFile:
    """A file that refuses to read more than ``left`` bytes; None for no limit. Headers may claim any length.

    `tarfile` reads the name of a member, its records and the parts of a sparse member as a whole.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.left: int | None = MAX_HEADER_BYTES
        self.seek, self.tell = file.seek, file.tell

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        if self.left is not None:
            if not 0 <= size <= self.left:
                raise tarfile.ReadError(f"a member has headers of more than {MAX_HEADER_BYTES:,} bytes")
            self.left -= size
        return self._file.read(size)


def _next(shard: tarfile.TarFile, file: _HeaderFile) -> tarfile.TarInfo | None:
    """The next member; None at the end."""
    file.left = MAX_HEADER_BYTES
    member = shard.next()
    file.left = None
    shard.members = []  # type: ignore[attr-defined]  # else the list of members would grow with the shard
    if sum(len(key) + len(value) for key, value in shard.pax_headers.items()) > MAX_HEADER_BYTES:
        raise tarfile.ReadError(f"the shard has global headers of more than {MAX_HEADER_BYTES:,} bytes")
    return member


def _check_same(file: IO[bytes], status: os.stat_result) -> None:
    """Raise an OSError if the shard was replaced since it was found: its images would get wrong identities."""
    now = os.fstat(file.fileno())
    if version(now) != version(status):
        raise OSError(errno.ESTALE, "the file has changed since it was found")


def _check_end(shard: tarfile.TarFile, file: IO[bytes]) -> None:
    """Raise a ReadError if reading stopped before the end of the shard.

    The library takes any damaged header but the first for the end.
    """
    file.seek(shard.offset)
    rest = file.read(tarfile.BLOCKSIZE)
    if rest and rest != tarfile.NUL * tarfile.BLOCKSIZE:
        raise tarfile.ReadError(f"no valid header at byte {shard.offset:,}")
