"""A run on the server: its record, memory and state, read again only when its files change."""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from climb.errors import InputError
from climb.memory.snapshot import MemorySnapshot
from climb.report.markup import encodable
from climb.report.page import read_memory
from climb.report.record import Record, make_record
from climb.runs import Journal, RunFolder
from climb.runs.folder import LOCKS
from climb.runs.run_file_checks import read_object
from climb.serve.journal_tail import JournalTail

State = Literal["finished", "learning", "waiting", "silent"]
SILENCE = 300.0  # seconds without a journal line, after which a run has stopped or waits for images
HELD_LOCKS = Path("/proc/locks")
Parts = dict[str, str]
"""Markup by the id of the element that it replaces."""
T = TypeVar("T")
log = logging.getLogger("climb.serve")


class Cache(Generic[T]):
    """The ``most`` recently used values, each made again when its version changes.

    >>> cache = Cache[str](2)
    >>> [cache.get(key, version, lambda: f"{key}{version}") for key, version in (("a", "1"), ("b", "1"), ("a", "2"))]
    ['a1', 'b1', 'a2']
    >>> cache.get("c", "1", lambda: "new"), cache.get("b", "1", lambda: "made again"), cache.get("c", "1", lambda: "no")
    ('new', 'made again', 'new')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._making: defaultdict[Hashable, threading.Lock] = defaultdict(threading.Lock)
        self._entries: OrderedDict[Hashable, tuple[str, T]] = OrderedDict()

    def get(self, key: Hashable, version: str, make: Callable[[], T]) -> T:
        """The value of a key. Other threads that want the same value wait while it is made."""
        with self._lock:
            making = self._making[key]
        with making:
            entry = self._entries.get(key)
            if entry is None or entry[0] != version:
                entry = (version, make())
            with self._lock:
                self._entries[key] = entry
                self._entries.move_to_end(key)
                while len(self._entries) > self._most:
                    self._entries.popitem(last=False)
            return entry[1]


@dataclass(frozen=True, kw_only=True)
class Caches:
    """Bounded caches that all runs share."""

    tails: Cache[JournalTail] = field(default_factory=lambda: Cache(100))  # up to half a megabyte each
    records: Cache[Record] = field(default_factory=lambda: Cache(8))  # several megabytes each
    rendered: Cache[Parts] = field(default_factory=lambda: Cache(16))  # a gallery: up to five each


class WatchedRun:
    """One run folder inside the served folder ``root``."""

    def __init__(self, root: Path, name: str, caches: Caches | None = None) -> None:
        self.name = name
        self.title = encodable(name or root.name)
        self.path = root / name
        self._root = root
        self._folder = RunFolder(self.path)
        self._caches = caches or Caches()
        self._briefs = Cache[Any](10)

    def version(self) -> str:
        """A text that changes whenever the record does."""
        folder = self._folder
        return " ".join(map(_stamp, (folder.config_path, folder.journal.path, folder.result_path)))

    def memory_version(self) -> str:
        """A text that changes whenever the saved memory does."""
        return f"{_stamp(self._folder.memory_path)} {_stamp(self._folder.checkpoint_path)}"

    def record(self) -> Record:
        """The current content of the folder.

        Raises:
            InputError: the folder holds no run, or its files are damaged.
        """
        # The version is taken before reading, so that a change while reading is noticed next time.
        return self._caches.records.get(self.name, self.version(), self._read)

    def rendered(self, kind: str, version: str, render: Callable[[], Parts]) -> Parts:
        """The result of ``render``, cached until the version changes: several browsers may show one run."""
        return self._caches.rendered.get((self.name, kind), version, render)

    def brief(self, kind: str, version: str, make: Callable[[Record], T]) -> T:
        """A small result of ``make``, kept until the version changes.

        The index of a thousand runs thus reads only those that have changed.

        Raises:
            InputError: the record cannot be read or shown.
        """
        with checked(self.title):
            value: T = self._briefs.get(kind, version, lambda: make(self.record()))
            return value

    def memory(self) -> MemorySnapshot | None:
        """The saved memory. None if a file of it is a link out of the served folder."""
        files = (self._folder.memory_path, self._folder.checkpoint_path, self._folder.previous_path)
        leads_out = any(path.exists() and not self._inside(path) for path in files)
        return None if leads_out else read_memory(self.path)

    def file(self, name: str) -> Path | None:
        """The path of a file of the run, if it exists inside the served folder."""
        path = self.path / name
        return path if self._inside(path) else None

    def state(self) -> State:
        """Whether the run has finished, is learning, waits with a living process, or none of these."""
        if self._inside(self._folder.result_path) or self._ended():
            return "finished"
        if self.silence() < SILENCE:
            return "learning"
        return "waiting" if self.at_work() else "silent"

    def at_work(self) -> bool:
        """Whether a living process holds the folder's lock. A watching learner may wait for images for days."""
        return any((path := self.file(name)) is not None and is_held(path) for name in LOCKS.values())

    def silence(self) -> float:
        """Seconds since the last line of the journal."""
        try:
            return max(0.0, time.time() - self._newest_part().stat().st_mtime)
        except OSError:
            return float("inf")

    def _newest_part(self) -> Path:
        """The file with the last line: after a rotation, `journal.jsonl` may not exist yet."""
        parts = [path for path in self._folder.journal.parts() if path.exists()]
        return parts[-1] if parts else self._folder.journal.path

    def _ended(self) -> bool:
        """Whether the last line of the journal is the end of a stream."""
        path = self._newest_part()
        last = self._briefs.get("last", _stamp(path), lambda: Journal(path).last() if self._inside(path) else None)
        return last is not None and last.get("event") == "end"

    def _read(self) -> Record:
        if self.name != encodable(self.name):
            raise InputError("the name of this folder is not UTF-8, so it cannot have a page: rename the folder")
        header = self._object(self._folder.config_path)
        if header is None:
            raise InputError(f"{self.title} holds no run: it has no config.json inside the served folder")
        parts = [path for path in self._folder.journal.parts() if path.exists()]
        tail = self._caches.tails.get(self.name, "", lambda: JournalTail(self.path))
        lines = tail.read() if all(map(self._inside, parts)) else []
        return make_record(self.path, header, self._object(self._folder.result_path), lines)

    def _object(self, path: Path) -> dict[str, Any] | None:
        return read_object(path) if self._inside(path) else None

    def _inside(self, path: Path) -> bool:
        return readable(self._root, path)


@contextmanager
def checked(title: str) -> Iterator[None]:
    """Inside, unexpected errors become an error of this run, so that other runs are still shown.

    Raises:
        InputError: the files of the run hold unexpected content.
    """
    try:
        yield
    except (InputError, OSError):
        raise
    except Exception as error:
        log.debug("cannot show %s", title, exc_info=True)
        raise InputError(
            f"{title} cannot be shown ({type(error).__name__}: {str(error)[:200]}): its files are damaged or belong "
            "to something else; restore them, or move the folder away"
        ) from error


def readable(root: Path, path: Path) -> bool:
    """Whether ``path``, with all links resolved, is a regular file inside the resolved path ``root``."""
    try:
        return path.resolve().is_relative_to(root) and path.is_file()
    except (OSError, RuntimeError, ValueError):  # a loop of links, or an invalid name
        return False


def is_held(lock: Path) -> bool:
    """Whether the process whose id is in the lock file is alive and holds the lock.

    The lock is never acquired, not even for a moment: a run that starts just then would be refused.
    """
    try:
        owner, inode = int(lock.read_text(encoding="utf-8")), lock.stat().st_ino
    except (OSError, ValueError):  # missing, or not written yet
        return False
    try:
        locks = HELD_LOCKS.read_text(encoding="utf-8")
    except OSError:  # not Linux: a living owner must do
        return _is_alive(owner)
    return re.search(rf"^\d+: FLOCK +\w+ +\w+ +{owner} \S+:{inode} ", locks, re.MULTILINE) is not None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, PermissionError)  # alive, owned by another user
    return True


def _stamp(path: Path) -> str:
    """Time and size of a file."""
    try:
        status = path.stat()
    except OSError:
        return "-"
    return f"{status.st_mtime_ns:x}.{status.st_size:x}"
