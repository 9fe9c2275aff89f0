"""Finished runs on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from climb.config import RunConfig, from_dict, to_dict
from climb.errors import InputError
from climb.runs import RunFolder

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
        results = [path] if path.name == "result.json" else sorted(path.rglob("result.json"))
        if not results:
            raise InputError(f"no finished run in '{path}': no result.json there or below")
        folders.update(dict.fromkeys(result.parent.resolve() for result in results))
    return [_read(folder) for folder in folders]


def _read(folder: Path) -> Found:
    """A run without a configuration cannot be held to others, so it is refused."""
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))["config"]
        missing = [name for name in NEEDED if name not in result]
        if missing:
            raise ValueError(f"its result has no {', '.join(missing)}")
        RunFolder(folder).result()  # refuses one that another run wrote
        config = to_dict(from_dict(RunConfig, config).resolved())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, InputError) as error:
        raise InputError(f"'{folder}' is not a whole run folder: {error}; leave it out, or run it again") from error
    return Found(path=folder, result=result, config=config)
