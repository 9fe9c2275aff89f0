"""Files that are either whole or absent: written under a temporary name, synced, renamed. And which there are."""

from __future__ import annotations

import contextlib
import glob
import json
import logging
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from climb.errors import ClimbError

log = logging.getLogger("climb.files")


def write_atomic(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, then put it in place at once."""
    temporary = path.with_name(f".{_start(path)}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.touch()
            mode = temporary.stat().st_mode  # as files have it here: some libraries keep theirs to the owner
            write(temporary)
            os.chmod(temporary, mode)
            with open(temporary, "rb+") as handle:
                os.fsync(handle.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ClimbError(f"cannot write {path}: {error.strerror or error}") from error


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a power cut, as the bytes of a synced file do.

    What is removed next, such as the checkpoint behind a result, must not be gone while its successor is not there yet.
    """
    with contextlib.suppress(OSError):  # Windows opens no folder, some network drives sync none: then it is as it was
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Inside, an error of the drive names the file: of a full disk the system says no more than that it is full."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


def leftovers(path: Path) -> list[Path]:
    """What processes that were killed left of writing ``path``."""
    return sorted(path.parent.glob(f".{glob.escape(_start(path))}.*.tmp"))


def _start(path: Path) -> str:
    return path.name[:50]  # systems allow 255 bytes, of which a character may take four


def write_text(path: Path, text: str) -> None:
    """A text file, atomically, in UTF-8. What is not, such as a byte of a file's name, stands as ``\\udce9``.

    People can read that, and in JSON it means the same name again.
    """
    write_atomic(path, lambda temporary: temporary.write_text(text, encoding="utf-8", errors="backslashreplace"))


def write_json(path: Path, data: Any) -> None:
    """A JSON file for people and programs, atomically. JSON has no NaN: such a value is refused."""
    write_text(path, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def files_below(folder: Path) -> Iterator[Path]:
    """All files below a folder, in no order. Hidden folders are skipped, and links to folders are not followed.

    Not by recursion, as Python's own ways are: folders may be nested deeper than that goes.
    """
    folders = [os.fspath(folder)]
    while folders:
        looked_into = folders.pop()
        try:
            with os.scandir(looked_into) as entries:
                found = list(entries)
        except (FileNotFoundError, NotADirectoryError):  # gone meanwhile
            continue
        except OSError as error:
            log.warning("cannot look into %s: %s; what is in it is left out", looked_into, error.strerror or error)
            continue
        for entry in found:
            if not entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)
            elif not entry.name.startswith("."):
                folders.append(entry.path)
