"""Find the runs below the served folder, and only files that are really inside it."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from climb.errors import InputError
from climb.runs.run_file_checks import read_json
from climb.serve.watched_run import Caches, WatchedRun, readable

FRESH = 2.0  # seconds until the folder is searched again
SHARE = 10  # and at least this multiple of the duration of a search: a large folder takes long
DEEPEST = 8  # folders below the served one


class Runs:
    """All runs inside ``root`` by name, their path relative to ``root``. Links are not followed.

    Raises:
        InputError: ``root`` is not a folder.
    """

    def __init__(self, root: Path) -> None:
        if not root.is_dir():
            raise InputError(f"{root} is not a folder; give one that holds runs, or the folder of a run")
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._runs: dict[str, WatchedRun] = {}
        self._caches = Caches()
        self._due = 0.0  # time of the next search

    def all(self) -> list[WatchedRun]:
        """The current runs, sorted by name."""
        with self._lock:
            now = time.monotonic()
            if now >= self._due:
                names = find_runs(self.root)
                self._runs = {name: self._runs.get(name) or WatchedRun(self.root, name, self._caches) for name in names}
                ended = time.monotonic()
                self._due = ended + max(FRESH, SHARE * (ended - now))
            return list(self._runs.values())

    def get(self, name: str) -> WatchedRun | None:
        """The run of this name. The name is only compared, never used as a path."""
        return next((run for run in self.all() if run.name == name), None)


def find_runs(root: Path) -> list[str]:
    """Names of the folders that hold a run; "" stands for ``root`` itself."""
    names = []
    for folder, below, files in os.walk(root, followlinks=False):
        path = Path(folder)
        depth = len(path.relative_to(root).parts)
        below[:] = sorted(name for name in below if not name.startswith(".")) if depth < DEEPEST else []
        if "config.json" in files and _is_run(root, path / "config.json"):
            names.append("" if depth == 0 else path.relative_to(root).as_posix())
    return sorted(names)


def _is_run(root: Path, path: Path) -> bool:
    """Whether a config.json is that of a run. A damaged one counts: the index shows what is wrong with it."""
    if not readable(root, path):
        return False
    try:
        header = read_json(path)
    except InputError:
        return True
    return isinstance(header, dict) and isinstance(header.get("config"), dict) and "config_hash" in header
