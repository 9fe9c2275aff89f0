"""A run folder: what is where, and whose it is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from climb.config import Execution, RunConfig, from_dict, to_dict
from climb.errors import ClimbError, InputError
from climb.files import leftovers, write_json
from climb.lock import exclusive
from climb.runs.believed import FORMAT_VERSION, check_format, check_result
from climb.runs.command import command_line
from climb.runs.journal import Journal
from climb.runs.json_files import ADVICE, read_object
from climb.runs.remembered import Remembered, remembered
from climb.state import load_tree, save_tree

LOCKS = {"run": ".lock", "learn": "lock"}
"""The file that keeps other processes out, by what is at work."""


class RunFolder:
    """The files of one run. The same configuration continues it, another one is refused."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_path = self.path / "config.json"
        self.result_path = self.path / "result.json"
        self.checkpoint_path = self.path / "checkpoint" / "state.safetensors"
        self.model_path = self.path / "model.safetensors"
        self.memory_path = self.path / "memory.safetensors"
        self.scenario_path = self.path / "scenario.json"
        self.journal = Journal(self.path / "journal.jsonl")

    def check(self, config: RunConfig) -> None:
        """Refuse a folder that holds something else than this configuration's run. Writes nothing."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; --out must name a folder")
        if self.config_path.exists():
            found = self.header()
            if found.get("config_hash") != config.config_hash():
                different = ", ".join(_differences(found.get("config", {}), to_dict(config.resolved()))) or "its format"
                raise InputError(
                    f"{self.path} holds another run ({different}); "
                    "give another --out, or delete the folder to start over"
                )
            if changed := _changed(found.get("config", {}), config):
                raise InputError(f"{self.config_path} was changed after the run began ({changed}); {ADVICE}")
        elif self.path.exists() and self._foreign():
            raise InputError(f"{self.path} is not empty and holds no run; give another --out")

    def _foreign(self) -> set[Path]:
        """What is in a folder that nobody has claimed, and was not put there by somebody about to."""
        locks = {self.path / name for name in LOCKS.values()}
        return set(self.path.iterdir()) - locks - set(leftovers(self.config_path))

    def check_images(self, found: str | None) -> None:
        """Refuse a run, begun or finished, of other images than were found. Of older runs, nothing is known."""
        there = self.data_fingerprint()
        if None not in (there, found) and there != found:
            raise InputError(
                f"{self.path} holds a run on other images ({there} there, {found} given: classes, names and sizes of "
                "files); give another --out, or delete the folder to start over"
            )

    def data_fingerprint(self) -> str | None:
        """What the run's images are known by; None where their dataset has a fixed content, or it was not written."""
        return self.header().get("data_fingerprint") if self.config_path.exists() else None

    @contextmanager
    def claimed(
        self,
        config: RunConfig,
        execution: Execution,
        versions: dict[str, str],
        *,
        images: str | None = None,
        by: Literal["run", "learn"] = "run",
    ) -> Iterator[None]:
        """Inside, the folder is this configuration's own, and this process's alone; it is made, if need be.

        What killed processes left half-written is removed. ``images`` is the fingerprint that the images are known by.
        """
        self.check(config)  # before anything is made: what is refused leaves no folder
        self.check_images(images)
        lock = self.path / LOCKS[by]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.touch()
        except OSError as error:
            raise ClimbError(f"cannot write {lock}: {error.strerror or error}") from error
        with exclusive(lock):
            self.claim(config, execution, versions, images=images)
            self.sweep()
            yield

    def claim(
        self, config: RunConfig, execution: Execution, versions: dict[str, str], *, images: str | None = None
    ) -> None:
        """Write whose folder it is, or find that it is this configuration's already. For whoever holds its lock."""
        self.check(config)
        self.check_images(images)
        if self.config_path.exists():
            return
        write_json(
            self.config_path,
            {
                "format_version": FORMAT_VERSION,
                "config_hash": config.config_hash(),
                **({} if images is None else {"data_fingerprint": images}),
                "config": to_dict(config.resolved()),
                "execution": to_dict(execution),
                "versions": versions,
                "command": command_line(),
            },
        )

    def header(self) -> dict[str, Any]:
        """What `config.json` says: the configuration, and what it was started with."""
        return _read(self.config_path)

    def result(self) -> dict[str, Any] | None:
        """What a finished run found; None while it is not finished."""
        if not self.result_path.exists():
            return None
        found = _read(self.result_path)
        check_result(found, self.header() if self.config_path.exists() else {}, self.result_path)
        return found

    def journal_parts(self) -> list[Path]:
        """The files of the journal, oldest lines first: a long one is continued in `journal.jsonl`."""
        older = [path for path in self.path.glob("journal.*.jsonl") if path.name.split(".")[1].isdecimal()]
        return [*sorted(older, key=lambda path: -int(path.name.split(".")[1])), self.journal.path]

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Replace the last complete state."""
        save_tree(self.checkpoint_path, state, kind="checkpoint")

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The last complete state, if there is one."""
        if not self.checkpoint_path.exists():
            return None
        try:
            state: dict[str, Any] = load_tree(self.checkpoint_path, kind="checkpoint")
        except ClimbError as error:
            raise ClimbError(f"{error}; {ADVICE}") from error
        return state

    def save_memory(self, content: Remembered | None) -> None:
        """Keep what the memory of a finished run holds, for people to look at; nothing where it has none."""
        if content is not None:
            save_tree(self.memory_path, content.smaller().to_tree(), kind="memory")

    def load_memory(self) -> Remembered | None:
        """What the memory held at the end or, of a run that goes on, at its last checkpoint; None if not kept."""
        if self.memory_path.exists():
            return Remembered.from_tree(load_tree(self.memory_path, kind="memory"))
        if self.checkpoint_path.exists():
            return remembered(load_tree(self.checkpoint_path, kind="checkpoint", at=("engine", "memory")))
        return None

    def sweep(self) -> None:
        """Remove what killed processes left half-written: it may be large. For whoever has the folder to itself."""
        written = (self.config_path, self.checkpoint_path, self.model_path, self.memory_path, self.result_path)
        for path in (*written, self.journal.path):
            for left in leftovers(path):
                left.unlink(missing_ok=True)

    def drop_checkpoint(self) -> None:
        """Remove the state of a run that is done, and what a killed process may have left beside it."""
        shutil.rmtree(self.checkpoint_path.parent, ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    """A JSON file of a run folder; one of a newer format is refused."""
    found = read_object(path)
    check_format(found, path)
    return found


def _changed(found: Any, config: RunConfig) -> str:
    """In what a written configuration is not the one that its hash stands for; older ones may know fewer settings."""
    try:
        same = from_dict(RunConfig, found).config_hash() == config.config_hash()
    except (InputError, AttributeError, TypeError, ValueError):  # it is no configuration at all
        same = False
    return "" if same else ", ".join(_differences(found, to_dict(config.resolved())))


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
