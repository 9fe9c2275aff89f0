"""Find image files in folders. Hidden files and folders are skipped, links to folders are not followed."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EXTENSIONS = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".avif", ".jp2"}
)
"""Extensions of image files, in lower case."""
COARSE_CLOCK_SECONDS = 3.0
"""A folder may change again within this time and keep its modification time: some file systems count steps of 2 s."""

FoundFile = tuple[str, os.stat_result]
"""Path and status of a file."""

log = logging.getLogger("climb.images")


def has_image_extension(path: str) -> bool:
    """Whether the extension of a path is one of `EXTENSIONS`, in any case.

    >>> has_image_extension("photos/a.JPG"), has_image_extension("notes.txt")
    (True, False)
    """
    return os.path.splitext(path)[1].lower() in EXTENSIONS


def version(status: os.stat_result) -> tuple[int, int]:
    """Size and modification time of a file. They change when it is written to."""
    return status.st_size, status.st_mtime_ns


def image_files(folder: Path) -> list[Path]:
    """All image files below ``folder``, sorted by path."""
    return list(_regular_files(folder))


def has_images(folder: Path) -> bool:
    """Whether there is an image file below ``folder``. The search ends at the first one."""
    return next(_regular_files(folder), None) is not None


def own_image_files(folder: Path) -> list[Path]:
    """The image files in ``folder`` itself, sorted by name."""
    names = sorted(name for name in os.listdir(folder) if has_image_extension(name) and not name.startswith("."))
    return [folder / name for name in names if os.path.isfile(folder / name)]


def _regular_files(folder: Path) -> Iterator[Path]:
    scan = FolderScanner(os.fspath(folder)).scan(full=True)
    return (Path(path) for path, status in scan if stat.S_ISREG(status.st_mode))


@dataclass(frozen=True, kw_only=True)
class _ScannedFolder:
    """A folder as it was when all its files had been given."""

    modified: int  # its modification time
    first_seen: float  # when this modification time was first seen
    scanned: float
    folders: list[str]  # paths of the folders in it


class FolderScanner:
    """Scans for the image files below a folder, again and again.

    Files that vanish during a scan are skipped. A folder that cannot be listed is logged once. The scanner holds the
    names in one folder at a time, and the paths of all folders.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._previous: dict[str, _ScannedFolder] = {}
        self._current: dict[str, _ScannedFolder] = {}
        self._logged: set[str] = set()

    def scan(self, full: bool) -> Iterator[FoundFile]:
        """The files, sorted within each folder: all of them, or those in folders that changed since the last scan.

        Adding, replacing or removing a file changes the modification time of its folder, which is as cheap to check
        as one file. Writing into a file does not change it: only a ``full`` scan finds that.
        """
        self._previous, self._current = self._current, {}
        # Not recursive: folders may be nested more deeply than Python's calls.
        stack = [self._scan_folder(self._root, full)]
        while stack:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
            elif isinstance(entry, str):
                stack.append(self._scan_folder(entry, full))
            else:
                yield entry

    def _scan_folder(self, folder: str, full: bool) -> Iterator[FoundFile | str]:
        """The files in a folder, and the paths of its folders. The caller scans each of them before it continues."""
        previous = self._previous.get(folder)
        try:
            modified, now = os.stat(folder).st_mtime_ns, time.monotonic()
            if previous is None or previous.modified != modified:
                previous = _ScannedFolder(modified=modified, first_seen=now, scanned=now, folders=[])
            elif not full and previous.scanned - previous.first_seen >= COARSE_CLOCK_SECONDS:
                self._current[folder] = previous
                yield from previous.folders
                return
            with os.scandir(folder) as entries:
                names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
            self._logged.discard(folder)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and folder != self._root:
                return
            if folder not in self._logged:
                log.warning("cannot list %s: %s; its images are left out", folder, error.strerror or error)
                self._logged.add(folder)
            return
        folders, complete = [], True
        for name, is_folder in names:
            if name.startswith("."):
                continue
            path = os.path.join(folder, name)
            if is_folder:
                folders.append(path)
                yield path
            elif has_image_extension(name):
                try:
                    status = os.stat(path)
                except OSError as error:
                    complete = complete and isinstance(error, FileNotFoundError)
                    continue
                yield path, status
        if complete:
            self._current[folder] = _ScannedFolder(
                modified=modified, first_seen=previous.first_seen, scanned=now, folders=folders
            )
