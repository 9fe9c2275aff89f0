"""What images of people's own are known by, wherever they lie: names and sizes. No file is opened."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path


def of_names(classes: Sequence[str]) -> str:
    """Known by its classes alone.

    >>> of_names(["cat", "dog"])
    '2 classes 3a450eb155d6a4c6'
    """
    return f"{_many(len(classes), 'class', 'classes')} {_digest(classes)}"


def of_files(classes: Sequence[str], files: Iterable[Path], root: Path) -> str:
    """Known by its classes and by the names below ``root`` and sizes of its files, in whatever order they are."""
    base = len(os.path.join(root, ""))  # cut off as text: a path object for each of a million files takes a minute
    lines = sorted(f"{str(file)[base:].replace(os.sep, '/')}\0{os.stat(file).st_size}" for file in files)
    return (
        f"{_many(len(classes), 'class', 'classes')} {_many(len(lines), 'file', 'files')} {_digest([*classes, *lines])}"
    )


def _digest(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]


def _many(count: int, one: str, several: str) -> str:
    return f"{count} {one if count == 1 else several}"
