"""A run that is being watched: its record and its memory, read again only when their files have changed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from climb.errors import InputError
from climb.report.encodable import encodable
from climb.report.page import read_memory
from climb.report.record import Record, make_record
from climb.runs import Journal, RunFolder
from climb.runs.folder import LOCKS
from climb.runs.json_files import read_object
from climb.runs.remembered import Remembered
from climb.serve.contained import readable
from climb.serve.holder import is_held
from climb.serve.recent import Recent
from climb.serve.tail import JournalTail

State = Literal["finished", "learning", "waiting", "silent"]
SILENCE = 300.0  # seconds without a line in the journal: it has stopped, or waits for images
Parts = dict[str, str]
"""Markup by the id of the element that it replaces."""
T = TypeVar("T")
log = logging.getLogger("climb.serve")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What is kept of all runs together, so that a server does not grow with what it has seen."""

    tails: Recent[JournalTail] = field(default_factory=lambda: Recent(100))  # half a megabyte at most, each
    records: Recent[tuple[str, Record]] = field(default_factory=lambda: Recent(8))  # several megabytes
    rendered: Recent[tuple[str, Parts]] = field(default_factory=lambda: Recent(16))  # a gallery: up to five


class WatchedRun:
    """One run folder inside the served one."""

    def __init__(self, root: Path, name: str, kept: Kept | None = None) -> None:
        self.name = name
        self.title = encodable(name or root.name)
        self.path = root / name
        self._root = root
        self._folder = RunFolder(self.path)
        self._kept = kept or Kept()
        self._lock = threading.Lock()
        self._rendering = threading.Lock()
        self._telling = threading.Lock()
        self._brief: dict[str, tuple[str, Any]] = {}
        self._end: tuple[str, bool] | None = None

    def version(self) -> str:
        """Changes whenever the record does."""
        folder = self._folder
        return " ".join(self._stamp(path) for path in (folder.config_path, folder.journal.path, folder.result_path))

    def memory_version(self) -> str:
        """Changes whenever what is known of the memory does."""
        return f"{self._stamp(self._folder.memory_path)} {self._stamp(self._folder.checkpoint_path)}"

    def record(self) -> Record:
        """What the folder says now.

        Raises:
            InputError: its files are not those of a run.
        """
        with self._lock:
            version = self.version()  # before reading: what is written meanwhile is found the next time
            found = self._kept.records.get(self.name)
            if found is None or found[0] != version:
                found = (version, self._read())
                self._kept.records.put(self.name, found)
            return found[1]

    def rendered(self, what: str, version: str, render: Callable[[], Parts]) -> Parts:
        """What ``render`` gives, kept until the version changes: many may look at one run."""
        with self._rendering:
            found = self._kept.rendered.get((self.name, what))
            if found is None or found[0] != version:
                found = (version, render())
                self._kept.rendered.put((self.name, what), found)
            return found[1]

    def brief(self, what: str, version: str, make: Callable[[Record], T]) -> T:
        """A little that ``make`` says of the record, kept for as long as there is the run: of a thousand runs, only
        those that changed are read again for the page that lists them.

        Raises:
            InputError: it cannot be said, whatever it is that is wrong with the files.
        """
        with self._telling:
            found = self._brief.get(what)
            if found is None or found[0] != version:
                found = (version, legible(self.title, lambda: make(self.record())))
                self._brief[what] = found
            told: T = found[1]
            return told

    def memory(self) -> Remembered | None:
        """What is kept of the memory; nothing where a file of it leads out of the served folder."""
        files = (self._folder.memory_path, self._folder.checkpoint_path)
        if any(path.exists() and not readable(self._root, path) for path in files):
            return None
        return read_memory(self.path)

    def file(self, name: str) -> Path | None:
        """A file of the run, if it is there and inside the served folder."""
        path = self.path / name
        return path if readable(self._root, path) else None

    def state(self) -> State:
        """Whether it is done, going on, at work without anything to tell, or none of these."""
        if readable(self._root, self._folder.result_path) or self._ended():
            return "finished"
        if self.silence() < SILENCE:
            return "learning"
        return "waiting" if self.at_work() else "silent"

    def at_work(self) -> bool:
        """Whether a living process has the folder to itself; one that watches a folder may wait for images for days."""
        return any((path := self.file(name)) is not None and is_held(path) for name in LOCKS.values())

    def silence(self) -> float:
        """Seconds since the journal was last written to."""
        try:
            return max(0.0, time.time() - self._newest_part().stat().st_mtime)
        except OSError:
            return float("inf")

    def _newest_part(self) -> Path:
        """The file with the journal's last line: a full one has been renamed, and the next is not begun yet."""
        there = [path for path in self._folder.journal_parts() if path.exists()]
        return there[-1] if there else self._folder.journal.path

    def _ended(self) -> bool:
        """Whether the journal's last line is that of a stream that came to its end."""
        path = self._newest_part()
        version = self._stamp(path)
        if self._end is None or self._end[0] != version:
            last = Journal(path).last() if readable(self._root, path) else None
            self._end = (version, last is not None and last.get("event") == "end")
        return self._end[1]

    def _read(self) -> Record:
        folder = self._folder
        if self.name != encodable(self.name):
            raise InputError("the name of this folder is not written in UTF-8, so no page can have it: rename it")
        header = self._object(folder.config_path)
        if header is None:
            raise InputError(f"{self.title} holds no run: it has no config.json inside the served folder")
        parts = [path for path in self._folder.journal_parts() if path.exists()]
        lines = self._tail().read() if all(readable(self._root, path) for path in parts) else []
        return make_record(self.path, header, self._object(folder.result_path), lines)

    def _tail(self) -> JournalTail:
        found = self._kept.tails.get(self.name)
        if found is None:
            found = JournalTail(self.path)
            self._kept.tails.put(self.name, found)
        return found

    def _object(self, path: Path) -> dict[str, Any] | None:
        return read_object(path) if readable(self._root, path) else None

    def _stamp(self, path: Path) -> str:
        try:
            status = path.stat()
        except OSError:
            return "-"
        return f"{status.st_mtime_ns:x}.{status.st_size:x}"


def legible(title: str, tell: Callable[[], T]) -> T:
    """What ``tell`` gives. Whatever goes wrong over the files of one run is said to be wrong with that run.

    Raises:
        InputError: they hold what nobody thought of.
    """
    try:
        return tell()
    except (InputError, OSError):
        raise
    except Exception as error:
        log.debug("cannot show %s", title, exc_info=True)
        raise InputError(
            f"{title} cannot be shown ({type(error).__name__}: {str(error)[:200]}): its files are damaged, or not "
            "those of a run; restore them, or move the folder away"
        ) from error
