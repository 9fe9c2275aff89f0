"""A run folder: its files, and the configuration that owns it; and the result as a dictionary."""

from __future__ import annotations

import numbers
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Literal

from climb.engine.choices import REFERENCE
from climb.errors import ClimbError, InputError
from climb.files import exclusive, leftovers
from climb.memory.snapshot import Group, MemorySnapshot
from climb.runs.checkpoints import Checkpoints
from climb.runs.journal import Journal, plain
from climb.runs.memory_snapshot import snapshot_of, with_small_images
from climb.runs.provenance import command_line
from climb.runs.run_file_checks import (
    ADVICE,
    FORMAT_VERSION,
    IDENTITY,
    check_format,
    check_result,
    other_run,
    read_object,
    write_object,
)
from climb.settings.config import Execution, RunConfig, from_dict, to_dict
from climb.state import load_tree, restoring, save_tree

LOCKS = {"run": ".lock", "learn": "lock"}
"""Name of the lock file, for runs and for learners."""


class RunFolder:
    """The files of one run. The same configuration continues it; another one is rejected."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_path = self.path / "config.json"
        self.result_path = self.path / "result.json"
        self.checkpoints = Checkpoints(self.path / "checkpoint")
        self.checkpoint_path, self.previous_path = self.checkpoints.newest, self.checkpoints.previous
        self.model_path = self.path / "model.safetensors"
        self.memory_path = self.path / "memory.safetensors"
        self.report_path = self.path / "report.html"
        self.scenario_path = self.path / "scenario.json"
        self.journal = Journal(self.path / "journal.jsonl")

    def check(self, config: RunConfig, images: str | None = None) -> None:
        """Reject a folder with anything but a run of this configuration, on images with this fingerprint."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is a file; --out must name a folder")
        if self.config_path.exists():
            stored, same = self.stored_config(), self.header().get("config_hash") == config.config_hash()
            if stored is None or not same:
                different = ", ".join(_differences(self.header().get("config", {}), to_dict(config.resolved())))
                if same:
                    raise InputError(f"{self.config_path} was changed after the run began ({different}); {ADVICE}")
                raise InputError(
                    f"{self.path} holds another run ({different or 'its format'}); "
                    "give another --out, or delete the folder to start over"
                )
        elif self.path.exists():
            # A process that was about to claim the folder may have left locks and incomplete files.
            own = {*(self.path / name for name in LOCKS.values()), *leftovers(self.config_path)}
            if set(self.path.iterdir()) - own:
                raise InputError(f"{self.path} is not empty and holds no run; give another --out")
        self.check_images(images)

    def stored_config(self) -> RunConfig | None:
        """The configuration in `config.json`; None without one, and if it does not fit the hash beside it."""
        if not self.config_path.is_file():
            return None
        header = self.header()
        try:  # hashes are compared: older versions stored fewer settings
            stored = from_dict(RunConfig, header["config"])
            return stored if stored.config_hash() == header["config_hash"] else None
        except (InputError, KeyError, AttributeError, TypeError, ValueError):  # not a configuration
            return None

    def check_images(self, fingerprint: str | None) -> None:
        """Reject a run of other images. Runs of older versions have no fingerprint and pass."""
        stored = self.data_fingerprint()
        if None not in (stored, fingerprint) and stored != fingerprint:
            raise InputError(
                f"{self.path} holds a run on other images ({stored} there, {fingerprint} given: classes, names and "
                "sizes of files); give another --out, or delete the folder to start over"
            )

    def data_fingerprint(self) -> str | None:
        """The fingerprint of the images; None for a dataset with fixed content, and for older runs."""
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
        """Inside, the folder belongs to this configuration and is locked by this process. Created if necessary.

        Removes files that killed processes left incomplete. ``images`` is the fingerprint of the images.
        """
        self.check(config, images)  # first, so that a rejected run leaves no folder
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
        """Write `config.json`, or check that it is of this configuration. The caller holds the lock."""
        self.check(config, images)
        if self.config_path.exists():
            return
        write_object(
            self.config_path,
            {
                "format_version": FORMAT_VERSION,
                "config_hash": config.config_hash(),
                **({} if images is None else {"data_fingerprint": images}),
                "config": to_dict(config.resolved()),
                "execution": {name: plain(value) for name, value in to_dict(execution).items()},
                "versions": versions,
                "command": command_line(),
            },
        )

    def header(self) -> dict[str, Any]:
        """Content of `config.json`: the configuration, and how the run was started."""
        return _read(self.config_path)

    def choices(self) -> dict[str, Any] | None:
        """How steps were executed on a CPU (`climb.engine.Choices`); None for a new folder, and on other devices.

        Older versions stored nothing, and had one way on a CPU.
        """
        if not self.config_path.exists():
            return None
        has_state = self.checkpoint_path.exists() or self.previous_path.exists()
        return self.header().get("choices", REFERENCE if has_state else None)

    def keep_choices(self, choices: dict[str, Any]) -> None:
        """Store how steps are executed. The caller holds the lock."""
        header = self.header()
        if header.get("choices") != choices:
            write_object(self.config_path, {**header, "choices": choices})

    def result(self) -> dict[str, Any] | None:
        """Content of `result.json`; None for an unfinished run."""
        if not self.result_path.exists():
            return None
        result = _read(self.result_path)
        check_result(result, self.header() if self.config_path.exists() else {}, self.result_path)
        return result

    def identity(self) -> dict[str, Any]:
        """The fields of `config.json` that identify the run; {} without one."""
        header = self.header() if self.config_path.exists() else {}
        return {name: header[name] for name in IDENTITY if name in header}

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Write a checkpoint; the one before is kept, too."""
        self.checkpoints.save({**state, "run": self.identity()})

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The state in the newest checkpoint that is whole; None without one."""
        return self.checkpoints.load(self.identity())

    def lost(self, state: dict[str, Any]) -> str:
        """What is lost because ``state`` is not that of the newest checkpoint, which is damaged; "" if it is."""
        if not self.checkpoints.fault:
            return ""
        counts = self.checkpoints.newest_counts(self.identity())
        last = self.journal.last() or {"batch": state["done"]}
        batches = max(0, (counts[0] if counts else last["batch"]) - state["done"])
        images = f" ({counts[1] - state['engine']['budget']['images']:,} images)" if counts else ""
        return (
            f"{self.checkpoints.fault}; going on from {self.checkpoints.loaded}: {'' if counts else 'at least '}"
            f"{batches:,} mini-batches{images} are lost, and learned again where the images can be read again"
        )

    def save_memory(self, snapshot: MemorySnapshot | None) -> None:
        """Write the memory of a finished run for display; nothing without a snapshot."""
        if snapshot is not None:
            groups = [dict(vars(group)) for group in with_small_images(snapshot).groups]
            tree = {"seen": snapshot.seen, "groups": groups, "run": self.identity()}
            save_tree(self.memory_path, tree, kind="memory")

    def load_memory(self) -> MemorySnapshot | None:
        """The memory of a finished run, or of the last checkpoint of an unfinished one; None if not saved."""
        if self.memory_path.exists():
            tree = load_tree(self.memory_path, kind="memory")
            self.check_owner(self.memory_path, tree.get("run", {}))
            with restoring(self.memory_path):
                return MemorySnapshot(seen=tree["seen"], groups=[Group(**group) for group in tree["groups"]])
        state = self.checkpoints.branch("engine", "memory")
        with restoring(self.checkpoints.folder):
            return snapshot_of(state, learner=self.header()["config"]["learner"]) if state else None

    def check_owner(self, path: Path, stored: Mapping[str, Any]) -> None:
        """Reject a file of another run. ``stored`` are the fields in it that identify its run."""
        if text := other_run(stored, self.identity()):
            raise InputError(f"{path} belongs to another run ({text}); {ADVICE}")

    def sweep(self) -> None:
        """Remove incomplete files of killed processes, which may be large. The caller holds the lock."""
        states = (self.checkpoint_path, self.previous_path)
        written = (self.config_path, self.model_path, self.memory_path, self.result_path, self.scenario_path)
        for path in (*states, *written, *self.journal.parts()):
            for left in leftovers(path):
                left.unlink(missing_ok=True)

    def drop_checkpoint(self) -> None:
        """Remove the checkpoints of a complete run, incomplete ones included."""
        shutil.rmtree(self.checkpoints.folder, ignore_errors=True)


class Result(dict[str, Any]):
    """The result of a run, a probe or a learner: a dictionary that a notebook shows as a table.

    >>> result = Result(linear_accuracy=71.25, classes=4, versions={"torch": "2"})
    >>> result.rows()
    [('linear accuracy', '71.25'), ('classes', '4')]
    >>> "<td>71.25</td>" in result._repr_html_()
    True
    """

    def rows(self) -> list[tuple[str, str]]:
        """Name and text of each number and string; matrices, versions and settings are left out."""
        return [
            (name.replace("_", " "), _text(name, value))
            for name, value in self.items()
            if isinstance(value, str | bool | numbers.Real)
        ]

    def _repr_html_(self) -> str:
        lines = (f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in self.rows())
        return f"<table>{''.join(lines)}</table>"


def _text(name: str, value: str | bool | numbers.Real) -> str:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return str(value)
    if isinstance(value, numbers.Integral):
        return str(value) if name == "seed" else f"{int(value):,}"
    return f"{float(value):.2f}"


def _read(path: Path) -> dict[str, Any]:
    """A JSON file of a run folder; a newer format is rejected."""
    content = read_object(path)
    check_format(content, path)
    return content


def _differences(stored: Any, new: Any, name: str = "") -> list[str]:
    """The differences of two configurations, as "learner.lr: 0.3 there, 0.1 given"."""
    if isinstance(stored, dict) and isinstance(new, dict):
        keys = [*stored, *(key for key in new if key not in stored)]
        return [
            text
            for key in keys
            for text in _differences(stored.get(key), new.get(key), f"{name}.{key}" if name else key)
        ]
    return [] if stored == new else [f"{name}: {stored} there, {new} given"]
