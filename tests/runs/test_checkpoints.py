"""Two checkpoints: the newest, and the one before for the case that the newest is damaged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from climb import files
from climb.errors import ClimbError
from climb.runs import Journal, RunFolder
from climb.runs.run_file_checks import write_object


def state(done: int) -> dict[str, Any]:
    return {"done": done, "engine": {"budget": {"images": 10 * done}, "memory": {"x": torch.full((50,), done)}}}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run with two checkpoints."""
    folder = RunFolder(tmp_path)
    write_object(folder.config_path, {"config_hash": "1f", "config": {"learner": {"method": "climb"}}})
    for done in (4, 7):
        folder.save_checkpoint(state(done))
    return folder


def damage(path: Path, place: int = -1) -> None:
    body = bytearray(path.read_bytes())
    body[place] ^= 1
    path.write_bytes(body)


def loaded(folder: RunFolder) -> tuple[int, str]:
    """What a new process loads, and what it reports."""
    again = RunFolder(folder.path)
    content = again.load_checkpoint()
    assert content is not None
    return content["done"], again.lost(content)


def test_the_newest_is_used_and_the_one_before_is_kept(folder: RunFolder) -> None:
    assert loaded(folder) == (7, "")
    assert sorted(path.name for path in folder.checkpoint_path.parent.iterdir()) == [
        "previous.safetensors",
        "state.safetensors",
    ]
    folder.save_checkpoint(state(9))
    folder.checkpoint_path.unlink()
    assert loaded(folder)[0] == 7


@pytest.mark.parametrize("place", [-1, 300], ids=["body", "header"])
def test_a_damaged_one_is_named_and_the_previous_one_used(folder: RunFolder, place: int) -> None:
    Journal(folder.journal.path).write(6, "train")
    damage(folder.checkpoint_path, place)
    done, lost = loaded(folder)
    assert done == 4
    assert f"{folder.checkpoint_path} is damaged" in lost or f"cannot read {folder.checkpoint_path}" in lost
    assert f"going on from {folder.previous_path}" in lost
    assert ("3 mini-batches (30 images) are lost" if place == -1 else "at least 2 mini-batches are lost") in lost


def test_a_missing_one_is_replaced_by_the_previous_one(folder: RunFolder) -> None:
    folder.checkpoint_path.unlink()
    done, lost = loaded(folder)
    assert done == 4
    assert f"{folder.checkpoint_path} is missing" in lost


def test_a_damaged_one_never_becomes_the_previous_one(folder: RunFolder) -> None:
    damage(folder.checkpoint_path)
    again = RunFolder(folder.path)
    again.load_checkpoint()
    again.save_checkpoint(state(8))
    assert loaded(folder) == (8, "")
    damage(folder.checkpoint_path)
    assert loaded(folder)[0] == 4
    again.save_checkpoint(state(9))  # by the process that wrote the one before, which was whole


def test_both_damaged_are_both_named(folder: RunFolder) -> None:
    damage(folder.checkpoint_path)
    damage(folder.previous_path)
    with pytest.raises(ClimbError, match=r"state\.safetensors is damaged.*previous\.safetensors is damaged.*restore"):
        folder.load_checkpoint()


def test_the_checkpoint_of_another_run_is_not_used(folder: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(tmp_path / "other")
    write_object(other.config_path, {"config_hash": "2e"})
    other.save_checkpoint(state(20))
    os.replace(other.checkpoint_path, folder.checkpoint_path)
    done, lost = loaded(folder)
    assert done == 4
    assert "is the checkpoint of another run (config_hash 2e; its config.json says 1f)" in lost
    folder.previous_path.unlink()
    with pytest.raises(ClimbError, match="is the checkpoint of another run"):
        folder.load_checkpoint()


def test_one_of_a_newer_version_is_not_taken_for_damaged(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("climb.state.FORMAT_VERSION", 3)
    folder.save_checkpoint(state(9))
    monkeypatch.undo()
    with pytest.raises(ClimbError, match=r"has format_version 3.*install a newer one"):
        folder.load_checkpoint()


def test_a_drive_without_hard_links_keeps_a_copy(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(files.os, "link", refuse)
    folder.save_checkpoint(state(9))
    damage(folder.checkpoint_path)
    assert loaded(folder)[0] == 7
    assert len(list(folder.checkpoint_path.parent.iterdir())) == 2


def test_at_every_moment_of_a_save_a_state_can_be_loaded(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, replace = [], os.replace

    def watched(source: Path, target: Path) -> None:
        seen.append((loaded(folder)[0], target.name))
        replace(source, target)
        seen.append((loaded(folder)[0], target.name))

    monkeypatch.setattr(files.os, "replace", watched)
    folder.save_checkpoint(state(9))
    folder.save_checkpoint(state(9))  # killed between its two renames, a save leaves one file under both names
    assert seen[:4] == [
        (7, "previous.safetensors"),
        (7, "previous.safetensors"),
        (7, "state.safetensors"),
        (9, "state.safetensors"),
    ]
    os.unlink(folder.previous_path)
    os.link(folder.checkpoint_path, folder.previous_path)
    folder.save_checkpoint(state(11))
    damage(folder.checkpoint_path)
    assert loaded(folder)[0] == 9
    assert len(list(folder.checkpoint_path.parent.iterdir())) == 2


def test_the_memory_is_shown_from_the_previous_one(folder: RunFolder) -> None:
    memory = {"images": torch.zeros(2, 3, 8, 8, dtype=torch.uint8), "ids": torch.tensor([4, 2]), "seen": 5}
    write_object(folder.config_path, {"config_hash": "1f", "config": {"learner": {"method": "er-fifo"}}})
    for done in (4, 7):
        folder.save_checkpoint({"done": done, "engine": {"memory": memory}})
    place = folder.checkpoint_path.read_bytes().rfind(b"\x04")
    damage(folder.checkpoint_path, place)
    snapshot = folder.load_memory()
    assert snapshot is not None
    assert snapshot.groups[0].numbers == [2, 4]
