"""A run that is being watched: its record and its memory, read again only when their files have changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from climb.errors import InputError
from climb.report.page import read_memory
from climb.report.record import Record, journal_parts, make_record, read_object
from climb.runs import RunFolder
from climb.runs.remembered import Remembered
from climb.serve.contained import readable
from climb.serve.tail import JournalTail

State = Literal["finished", "learning", "silent"]
SILENCE = 300.0  # seconds without a line in the journal: it has stopped, or waits for images


class WatchedRun:
    """One run folder inside the served one."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.title = name or root.name
        self.path = root / name
        self._root = root
        self._folder = RunFolder(self.path)
        self._tail = JournalTail(self.path)
        self._lock = threading.Lock()
        self._rendering = threading.Lock()
        self._record: tuple[str, Record] | None = None
        self._rendered: dict[str, tuple[str, dict[str, str]]] = {}

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
            if self._record is None or self._record[0] != version:
                self._record = (version, self._read())
            return self._record[1]

    def rendered(self, what: str, version: str, render: Callable[[], dict[str, str]]) -> dict[str, str]:
        """What ``render`` gives, kept until the version changes: many may look at one run."""
        with self._rendering:
            if what not in self._rendered or self._rendered[what][0] != version:
                self._rendered[what] = (version, render())
            return self._rendered[what][1]

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
        """Whether it is done, going on, or neither."""
        if readable(self._root, self._folder.result_path):
            return "finished"
        return "learning" if self.silence() < SILENCE else "silent"

    def silence(self) -> float:
        """Seconds since the journal was last written to."""
        try:
            return max(0.0, time.time() - self._folder.journal.path.stat().st_mtime)
        except OSError:
            return float("inf")

    def _read(self) -> Record:
        folder = self._folder
        header = self._object(folder.config_path)
        if header is None:
            raise InputError(f"{self.title} holds no run: it has no config.json inside the served folder")
        parts = [path for path in journal_parts(self.path) if path.exists()]
        lines = list(self._tail.read()) if all(readable(self._root, path) for path in parts) else []
        return make_record(self.path, header, self._object(folder.result_path), lines)

    def _object(self, path: Path) -> dict[str, Any] | None:
        return read_object(path) if readable(self._root, path) else None

    def _stamp(self, path: Path) -> str:
        try:
            status = path.stat()
        except OSError:
            return "-"
        return f"{status.st_mtime_ns:x}.{status.st_size:x}"
