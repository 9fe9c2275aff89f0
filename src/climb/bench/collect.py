"""Finished runs on disk."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from climb.config import RunConfig, from_dict, to_dict
from climb.errors import InputError
from climb.files import files_below
from climb.runs import RunFolder

log = logging.getLogger("climb.bench")
RESULT = "result.json"
NEEDED = ("config_hash", "dataset", "method", "seed", "tasks")
"""What a result must say, or it has no place in a table."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A finished run: its folder and what it wrote."""

    path: Path
    result: dict[str, Any]
    config: dict[str, Any]
    """Every setting, those that an older version did not write too."""


def find_runs(paths: Iterable[str | Path]) -> list[Found]:
    """Every finished run in these folders and below, each once, by path.

    One below a folder that cannot be read is left out with a warning: it is not to cost the others.

    Raises:
        InputError: a path that does not exist, one without any finished run, or a run folder that cannot be read.
    """
    folders: dict[Path, bool] = {}  # whether it was named itself
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise InputError(f"there is nothing at '{path}'; give run folders, or folders that hold some")
        results = [path] if path.name == RESULT else sorted(file for file in files_below(path) if file.name == RESULT)
        if not results:
            raise InputError(f"no finished run in '{path}': no {RESULT} there or below")
        own = (path if path.name != RESULT else path.parent).resolve()
        for folder in (result.parent.resolve() for result in results):
            folders[folder] = folders.get(folder, False) or folder == own
    found = [run for folder, named in folders.items() if (run := _read(folder, named=named)) is not None]
    if folders and not found:
        raise InputError(f"none of the {len(folders)} runs found can be read")
    return found


def _read(path: Path, *, named: bool) -> Found | None:
    """A run without a configuration cannot be held to others: it is refused where it was named, else left out."""
    folder = RunFolder(path)
    try:
        result = folder.result() or {}  # refuses one that another run wrote
        missing = [name for name in NEEDED if name not in result]
        if missing:
            raise ValueError(f"its result has no {', '.join(missing)}")
        config = to_dict(from_dict(RunConfig, folder.header()["config"]).resolved())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if named:
            raise InputError(f"'{path}' is not a whole run folder; leave it out, or mend it: {error}") from error
        log.warning("%s is left out: it is not a whole run folder: %s", path, error)
        return None
    return Found(path=path, result=result, config=config)
