"""Finished runs on disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from climb.config import RunConfig, from_dict, to_dict
from climb.errors import InputError
from climb.files import files_below
from climb.runs import RunFolder

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

    Raises:
        InputError: a path that does not exist, or one without any finished run.
    """
    folders: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if not path.exists():
            raise InputError(f"there is nothing at '{path}'; give run folders, or folders that hold some")
        results = [path] if path.name == RESULT else sorted(file for file in files_below(path) if file.name == RESULT)
        if not results:
            raise InputError(f"no finished run in '{path}': no {RESULT} there or below")
        folders.update(dict.fromkeys(result.parent.resolve() for result in results))
    return [_read(folder) for folder in folders]


def _read(path: Path) -> Found:
    """A run without a configuration cannot be held to others, so it is refused."""
    folder = RunFolder(path)
    try:
        result = folder.result() or {}  # refuses one that another run wrote
        missing = [name for name in NEEDED if name not in result]
        if missing:
            raise ValueError(f"its result has no {', '.join(missing)}")
        config = to_dict(from_dict(RunConfig, folder.header()["config"]).resolved())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"'{path}' is not a whole run folder; leave it out, or mend it: {error}") from error
    return Found(path=path, result=result, config=config)
