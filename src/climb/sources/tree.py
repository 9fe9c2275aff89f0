"""The files below a folder, look after look."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from climb.sources.watch import Found

SURE_SECONDS = 3.0
"""So long after a folder has changed, another change shows in its time: some file systems count in steps of 2 s."""

log = logging.getLogger("climb.sources")


@dataclass(frozen=True, kw_only=True)
class _Listed:
    """A folder as it was when all in it was given."""

    changed: int  # its time
    since: float  # when that time was first seen
    at: float  # when it was listed
    folders: list[str]  # those in it


class Tree:
    """The files below a folder that have one of some extensions, sorted within each folder.

    Hidden files and folders are skipped, and what vanishes while one looks. Links to folders are not followed. Folders
    that cannot be listed are logged, once. The names of one folder at a time are in memory, and those of all folders.
    """

    def __init__(self, root: str, extensions: frozenset[str]) -> None:
        self._root = root
        self._extensions = extensions
        self._before: dict[str, _Listed] = {}
        self._now: dict[str, _Listed] = {}
        self._told: set[str] = set()

    def look(self, thorough: bool) -> Iterator[Found]:
        """The files with their status: all, or those in folders that changed since the last look.

        To add a file to a folder, to replace or to remove one, changes the folder's own time, which costs as much to
        see as one file. To write into a file does not: only a ``thorough`` look finds that.
        """
        self._before, self._now = self._now, {}
        # Not by recursion: folders may be nested deeper than Python lets functions be.
        entered = [self._inside(self._root, thorough)]
        while entered:
            found = next(entered[-1], None)
            if found is None:
                entered.pop()
            elif isinstance(found, str):
                entered.append(self._inside(found, thorough))
            else:
                yield found

    def _inside(self, folder: str, thorough: bool) -> Iterator[Found | str]:
        """The files in a folder, and the paths of the folders in it, which are to be looked into before the next."""
        before = self._before.get(folder)
        try:
            changed, now = os.stat(folder).st_mtime_ns, time.monotonic()
            if before is None or before.changed != changed:
                before = _Listed(changed=changed, since=now, at=now, folders=[])
            elif not thorough and before.at - before.since >= SURE_SECONDS:
                self._now[folder] = before
                yield from before.folders
                return
            with os.scandir(folder) as entries:
                names = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
            self._told.discard(folder)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and folder != self._root:
                return
            if folder not in self._told:
                log.warning("cannot look into %s: %s; what is in it is not learned", folder, error.strerror or error)
                self._told.add(folder)
            return
        folders, complete = [], True
        for name, is_folder in names:
            if name.startswith("."):
                continue
            path = os.path.join(folder, name)
            if is_folder:
                folders.append(path)
                yield path
            elif os.path.splitext(name)[1].lower() in self._extensions:
                try:
                    status = os.stat(path)
                except OSError as error:
                    complete = complete and isinstance(error, FileNotFoundError)
                    continue
                yield path, status
        if complete:
            self._now[folder] = _Listed(changed=changed, since=before.since, at=now, folders=folders)
