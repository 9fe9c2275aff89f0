"""A run folder: what is where, and whose it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from climb.config import Execution, RunConfig, to_dict
from climb.errors import InputError
from climb.runs.journal import Journal
from climb.state import load_tree, save_tree, write_json

FORMAT_VERSION = 1


class RunFolder:
    """The files of one run. The same configuration continues it, another one is refused."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_path = self.path / "config.json"
        self.result_path = self.path / "result.json"
        self.checkpoint_path = self.path / "checkpoint" / "state.safetensors"
        self.model_path = self.path / "model.safetensors"
        self.journal = Journal(self.path / "journal.jsonl")

    def check(self, config: RunConfig) -> None:
        """Refuse a folder that holds something else than this configuration's run. Writes nothing."""
        if self.config_path.exists():
            found = json.loads(self.config_path.read_text(encoding="utf-8"))
            if found.get("config_hash") != config.config_hash():
                different = ", ".join(_differences(found.get("config", {}), to_dict(config))) or "its format"
                raise InputError(
                    f"{self.path} holds another run ({different}); "
                    "give another --out, or delete the folder to start over"
                )
        elif self.path.exists() and any(self.path.iterdir()):
            raise InputError(f"{self.path} is not empty and holds no run; give another --out")

    def claim(self, config: RunConfig, execution: Execution, versions: dict[str, str]) -> None:
        """Make the folder this configuration's own, or find that it already is."""
        self.check(config)
        if self.config_path.exists():
            return
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(
            self.config_path,
            {
                "format_version": FORMAT_VERSION,
                "config_hash": config.config_hash(),
                "config": to_dict(config),
                "execution": to_dict(execution),
                "versions": versions,
            },
        )

    def result(self) -> dict[str, Any] | None:
        """What a finished run found; None while it is not finished."""
        if not self.result_path.exists():
            return None
        found: dict[str, Any] = json.loads(self.result_path.read_text(encoding="utf-8"))
        return found

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Replace the last complete state."""
        save_tree(self.checkpoint_path, state, kind="checkpoint")

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last complete state, if there is one."""
        if not self.checkpoint_path.exists():
            return None
        state: dict[str, Any] = load_tree(self.checkpoint_path, kind="checkpoint")
        return state

    def drop_checkpoint(self) -> None:
        """Remove the state of a run that is done."""
        self.checkpoint_path.unlink(missing_ok=True)
        if self.checkpoint_path.parent.exists():
            self.checkpoint_path.parent.rmdir()


def _differences(found: Any, given: Any, name: str = "") -> list[str]:
    """Where two configurations differ, as "learner.lr: 0.3 there, 0.1 given"."""
    if isinstance(found, dict) and isinstance(given, dict):
        keys = [*found, *(key for key in given if key not in found)]
        return [
            text
            for key in keys
            for text in _differences(found.get(key), given.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if found == given else [f"{name}: {found} there, {given} given"]
