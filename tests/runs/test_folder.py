"""Whose a run folder is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from climb.errors import ClimbError, InputError
from climb.files import exclusive
from climb.runs.folder import LOCKS, RunFolder
from climb.runs.run_file_checks import read_object
from climb.settings.config import Execution, RunConfig

CPU = Execution(device="cpu")


def test_it_is_written_under_the_lock_whose_folder_it_is(tmp_path: Path) -> None:
    """Else two processes that find it empty at once could both call it theirs."""
    refused = []

    class Watched(RunFolder):
        def claim(self, *args: Any, **rest: Any) -> None:
            with pytest.raises(InputError, match="another process"), exclusive(self.path / ".lock"):
                pass
            refused.append(self.config_path.exists())
            super().claim(*args, **rest)

    with Watched(tmp_path / "run").claimed(RunConfig(), CPU, {}):
        assert refused == [False]
        assert read_object(tmp_path / "run" / "config.json")["config_hash"] == RunConfig().config_hash()


def test_who_comes_second_with_another_configuration_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with RunFolder(tmp_path).claimed(RunConfig(), CPU, {}):
        pass
    before = (tmp_path / "config.json").read_bytes()
    other = RunFolder(tmp_path).claimed(replace(RunConfig(), seed=7), CPU, {})
    with pytest.raises(InputError, match="holds another run"), other:
        pass
    assert (tmp_path / "config.json").read_bytes() == before


@pytest.mark.parametrize("lock", LOCKS.values())
def test_a_folder_that_was_only_locked_is_as_good_as_empty(tmp_path: Path, lock: str) -> None:
    (tmp_path / lock).touch()
    with RunFolder(tmp_path).claimed(RunConfig(), CPU, {}):
        assert (tmp_path / "config.json").exists()


def test_a_place_where_no_folder_can_be_made_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = RunFolder(tmp_path / "file" / "run")
    with pytest.raises(ClimbError, match=r"cannot write .*Not a directory"), folder.claimed(RunConfig(), CPU, {}):
        pass


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file is a file; --out must name a folder"):
        RunFolder(tmp_path / "file").check(RunConfig())


def test_who_comes_second_with_other_images_is_refused_though_both_found_the_folder_empty(tmp_path: Path) -> None:
    RunFolder(tmp_path).claim(RunConfig(), CPU, {}, images="2 classes 30 files a")
    with pytest.raises(InputError, match="2 classes 30 files a there, 2 classes 30 files b given"):
        RunFolder(tmp_path).claim(RunConfig(), CPU, {}, images="2 classes 30 files b")


def test_half_of_every_file_that_a_run_replaces_is_swept_away(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    written = (folder.config_path, folder.checkpoint_path, folder.model_path, folder.memory_path, folder.result_path)
    journal = (folder.journal.path, tmp_path / "journal.2.jsonl")
    journal[1].touch()
    left = [path.with_name(f".{path.name}.1a.tmp") for path in (*written, *journal, folder.scenario_path)]
    folder.checkpoint_path.parent.mkdir()
    for file in (*left, tmp_path / ".notes.txt.1a.tmp"):
        file.touch()
    folder.sweep()
    assert {path.name for path in tmp_path.iterdir() if path.is_file()} == {".notes.txt.1a.tmp", "journal.2.jsonl"}
    assert not any(file.exists() for file in left)


def test_the_parts_of_a_long_journal_come_by_their_number(tmp_path: Path) -> None:
    names = ["journal.11.jsonl", "journal.10.jsonl", "journal.9.jsonl", "journal.1.jsonl"]
    for name in (*sorted(names), "journal.old.jsonl"):
        (tmp_path / name).touch()
    assert [path.name for path in RunFolder(tmp_path).journal.parts()] == [*names, "journal.jsonl"]
