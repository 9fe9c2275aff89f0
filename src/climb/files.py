"""Files: atomic writes, lock files, the cache folder, and the files below a folder."""

from __future__ import annotations

import contextlib
import glob
import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any
from zlib import crc32

from climb.errors import ClimbError, InputError

log = logging.getLogger("climb.files")
_warned = Event()


def write_atomic(path: Path, write: Callable[[Path], object], *, keep: Path | None = None) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then rename it to ``path``.

    The file that is replaced gets the name ``keep``, if given. There is no moment without a file ``path``.
    """
    if not path.name:
        raise InputError(f"cannot write '{path}': it is the name of a folder")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise InputError(f"cannot write {str(path)!r}: no file can have this name")
    temporary = _temporary(path)
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent.parent)
        try:
            temporary.touch()
            mode = temporary.stat().st_mode  # the default: some libraries create private files
            write(temporary)
            os.chmod(temporary, mode)
            with open(temporary, "rb+") as handle:
                os.fsync(handle.fileno())
            if keep is not None and path.exists():
                _link(path, keep)
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ClimbError(f"cannot write {path}: {error.strerror or error}") from error


def _link(path: Path, name: Path) -> None:
    """Give a file a second name; on a drive without hard links, a copy."""
    temporary = _temporary(name)
    try:
        try:
            os.link(path, temporary)
        except OSError:
            shutil.copyfile(path, temporary)
            with open(temporary, "rb+") as handle:
                os.fsync(handle.fileno())
        os.replace(temporary, name)
    finally:
        temporary.unlink(missing_ok=True)  # also if both names were one file, which makes the rename do nothing


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk, so that they survive a power cut.

    Otherwise a file that is removed afterwards, such as a checkpoint, may disappear before its successor exists.
    """
    with contextlib.suppress(OSError):  # Windows cannot open folders, and some network drives cannot sync them
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to operating system errors inside the context. The error of a full disk has none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


def leftovers(path: Path) -> list[Path]:
    """Temporary files of ``path`` that killed processes left."""
    return sorted(path.parent.glob(f".{glob.escape(_start(path))}.*.tmp"))


def _temporary(path: Path) -> Path:
    return path.with_name(f".{_start(path)}.{uuid.uuid4().hex}.tmp")


def _start(path: Path) -> str:
    return path.name[:50]  # file systems allow 255 bytes, and a character may take four


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8. Undecodable bytes of file names are written as ``\\udce9``.

    This is readable, and JSON decodes it to the same name.
    """
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8", errors="backslashreplace"))


def write_json(path: Path, data: Any) -> None:
    """Write an indented JSON file atomically. NaN raises ValueError, because JSON has none."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def json_checksum(content: Any) -> str:
    """CRC-32 of JSON data, independent of how a file spells it.

    >>> json_checksum({"a": 1, "b": [0.5, None]})
    '09b18912'
    """
    return f"{crc32(json.dumps(content, separators=(',', ':')).encode()):08x}"


def warn_unchecked(path: Path) -> None:
    """Warn, once in a process, that a file of an older version has no checksum."""
    if not _warned.is_set():
        _warned.set()
        log.warning("%s is of an older version, without checksums: damage to such files can go unnoticed", path)


def files_below(folder: Path) -> Iterator[Path]:
    """All files below a folder, unordered. Skips hidden folders and does not follow links to folders."""
    # Not recursive, because folders may be nested deeper than Python's recursion limit.
    folders = [os.fspath(folder)]
    while folders:
        current = folders.pop()
        try:
            with os.scandir(current) as entries:
                contents = list(entries)
        except (FileNotFoundError, NotADirectoryError):  # removed in the meantime
            continue
        except OSError as error:
            log.warning("cannot read folder %s: %s; its files are skipped", current, error.strerror or error)
            continue
        for entry in contents:
            if not entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)
            elif not entry.name.startswith("."):
                folders.append(entry.path)


try:
    import fcntl
except ImportError:  # Windows: no locks
    fcntl = None  # type: ignore[assignment]


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` inside the context. Other processes wait."""
    with open(path, "ab") as handle:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file ``path``. False on a drive without locks."""
    try:
        with open(path, "rb") as handle:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that several processes can test at once
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` inside the context. Other processes get an error with the holder's process id."""
    with open(path, "a+", encoding="utf-8") as handle:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.seek(0)
                owner = handle.read().strip() or "unknown"
                raise InputError(
                    f"another process (id {owner}) is using {path.parent}; stop it, or give another --out"
                ) from None
            except OSError as error:  # some network drives have no locks
                raise ClimbError(f"cannot lock {path}: {error.strerror}; give an --out on another drive") from error
        handle.truncate(0)
        try:
            os.write(handle.fileno(), f"{os.getpid()}\n".encode())  # unbuffered, so that closing cannot fail
        except OSError as error:
            raise ClimbError(f"cannot write {path}: {error.strerror}") from error
        yield


def cache_dir() -> Path:
    """The cache for downloads, decoded images and compiled kernels: ``$CLIMB_CACHE``, or ``~/.cache/climb``.

    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, CLIMB_CACHE="/somewhere/else"):
    ...     cache_dir().as_posix()
    '/somewhere/else'
    """
    chosen = os.environ.get("CLIMB_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "climb"
