"""Which image files there are, in an order that does not depend on the file system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from climb.datasets.decode import EXTENSIONS
from climb.errors import InputError
from climb.files import files_below


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Image files of one part of a dataset and the label of each."""

    files: tuple[Path, ...]
    labels: tuple[int, ...]


def image_files(folder: Path) -> list[Path]:
    """All image files below ``folder``, sorted by path; hidden files and folders are skipped."""
    return sorted(_images_below(folder), key=lambda path: path.relative_to(folder).parts)


def has_images(folder: Path) -> bool:
    """Whether there is an image file below ``folder``: the first one found answers."""
    return next(_images_below(folder), None) is not None


def own_image_files(folder: Path) -> list[Path]:
    """The image files that lie in ``folder`` itself, sorted by name; hidden files are skipped."""
    return sorted(path for path in folder.iterdir() if _is_image(path) and not path.name.startswith("."))


def class_folders(folder: Path) -> list[str]:
    """Names of the folders in ``folder``, sorted; hidden ones are skipped."""
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def list_classes(folder: Path, classes: list[str]) -> Listing:
    """The images of ``folder/<class>/`` for each class; label i is ``classes[i]``."""
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        own = image_files(folder / name) if (folder / name).is_dir() else []
        if not own:
            raise InputError(
                f"class '{name}' has no image in {folder / name}; every class needs at least one there "
                f"({', '.join(sorted(EXTENSIONS))})"
            )
        files += own
        labels += [label] * len(own)
    return Listing(files=tuple(files), labels=tuple(labels))


def _images_below(folder: Path) -> Iterator[Path]:
    return (path for path in files_below(folder) if _is_image(path) and not path.name.startswith("."))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS and os.path.isfile(path)
