"""The runs below a folder."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from climb.errors import InputError
from climb.runs.json_files import read_json
from climb.serve.contained import readable
from climb.serve.watched import Kept, WatchedRun

FRESH = 2.0  # seconds for which a search is not repeated
SHARE = 10  # and at least so many times as long as it took: a large folder is not searched all the time
DEEPEST = 8  # folders below the served one


class Runs:
    """All runs inside ``root``, by name: their path from there. Links are not followed.

    Raises:
        InputError: there is no such folder.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InputError(f"{root} is not a folder; give one that holds runs, or the folder of a run")
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._runs: dict[str, WatchedRun] = {}
        self._kept = Kept()
        self._due = 0.0  # when to search again

    def all(self) -> list[WatchedRun]:
        """The runs there are now, by name."""
        with self._lock:
            now = time.monotonic()
            if now >= self._due:
                names = find_runs(self.root)
                self._runs = {name: self._runs.get(name) or WatchedRun(self.root, name, self._kept) for name in names}
                ended = time.monotonic()
                self._due = ended + max(FRESH, SHARE * (ended - now))
            return list(self._runs.values())

    def get(self, name: str) -> WatchedRun | None:
        """A run that was found; a name is never made into a path."""
        return next((run for run in self.all() if run.name == name), None)


def find_runs(root: Path) -> list[str]:
    """Names of the folders that hold a run, "" for ``root`` itself."""
    found = []
    for folder, below, files in os.walk(root, followlinks=False):
        path = Path(folder)
        depth = len(path.relative_to(root).parts)
        below[:] = sorted(name for name in below if not name.startswith(".")) if depth < DEEPEST else []
        if "config.json" in files and _is_run(root, path / "config.json"):
            found.append("" if depth == 0 else path.relative_to(root).as_posix())
    return sorted(found)


def _is_run(root: Path, path: Path) -> bool:
    """Whether a config.json is that of a run, or cannot be read: then people should be told that it cannot."""
    if not readable(root, path):
        return False
    try:
        header = read_json(path)
    except InputError:
        return True
    return isinstance(header, dict) and isinstance(header.get("config"), dict) and "config_hash" in header
