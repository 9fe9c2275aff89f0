"""The checkpoints of a run folder: the newest state, and the one before in case the newest is damaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from climb.errors import ClimbError, DamagedFile
from climb.runs.run_file_checks import ADVICE, other_run
from climb.state import load_tree, save_tree

KIND = "checkpoint"
Content = TypeVar("Content")


class Checkpoints:
    """Two state files in a folder.

    Args:
        folder: the folder, which may not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest = folder / "state.safetensors"
        self.previous = folder / "previous.safetensors"
        self.loaded = self.newest
        """The file of the last `load`."""
        self.fault = ""
        """Why the last `load` did not use the newest file; "" if it did."""

    def save(self, state: Mapping[str, Any]) -> None:
        """Write the newest state. The one before becomes the previous one, unless it is damaged."""
        save_tree(self.newest, state, kind=KIND, keep=None if self.fault else self.previous)
        self.loaded, self.fault = self.newest, ""

    def load(self, owner: Mapping[str, Any]) -> dict[str, Any] | None:
        """The newest state that is whole and of this run; None if none was saved yet.

        Args:
            owner: fields that identify the run; older states have none.
        """

        def read(path: Path) -> dict[str, Any]:
            state: dict[str, Any] = load_tree(path, kind=KIND)
            if text := other_run(state.get("run", {}), owner):
                raise DamagedFile(f"{path} is the checkpoint of another run ({text})")
            self.loaded = path
            return state

        try:
            state, self.fault = self._first(read)
        except ClimbError as error:
            raise type(error)(f"{error}; {ADVICE}") from error
        return state

    def branch(self, *keys: str) -> Any:
        """A part of the newest state that can be read; None if none was saved yet."""
        return self._first(lambda path: load_tree(path, kind=KIND, at=keys))[0]

    def newest_counts(self, owner: Mapping[str, Any]) -> tuple[int, int] | None:
        """Mini-batches and images of the newest state of this run; None if even its header is damaged."""
        places = (("run",), ("done",), ("engine", "budget", "images"))
        try:
            run, done, images = (load_tree(self.newest, kind=KIND, at=keys) for keys in places)
        except ClimbError:
            return None
        return None if other_run(run, owner) else (done, images)

    def _first(self, read: Callable[[Path], Content]) -> tuple[Content | None, str]:
        """What ``read`` returns for the newest file or, if that is damaged, for the previous one; and the damage."""
        if not self.previous.exists():
            return (read(self.newest) if self.newest.exists() else None), ""
        try:
            if not self.newest.exists():
                raise DamagedFile(f"{self.newest} is missing")
            return read(self.newest), ""
        except DamagedFile as error:
            try:
                return read(self.previous), str(error)
            except DamagedFile as other:
                raise DamagedFile(f"{error}; {other}") from other
