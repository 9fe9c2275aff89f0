"""Whose a run folder is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from climb.config import Execution, RunConfig
from climb.errors import ClimbError, InputError
from climb.lock import exclusive
from climb.runs.folder import RunFolder

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
        assert json.loads((tmp_path / "run" / "config.json").read_text())["config_hash"] == RunConfig().config_hash()


def test_who_comes_second_with_another_configuration_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with RunFolder(tmp_path).claimed(RunConfig(), CPU, {}):
        pass
    before = (tmp_path / "config.json").read_bytes()
    other = RunFolder(tmp_path).claimed(replace(RunConfig(), seed=7), CPU, {})
    with pytest.raises(InputError, match="holds another run"), other:
        pass
    assert (tmp_path / "config.json").read_bytes() == before


def test_a_folder_that_was_only_locked_is_as_good_as_empty(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    with RunFolder(tmp_path).claimed(RunConfig(), CPU, {}):
        assert (tmp_path / "config.json").exists()


def test_a_place_where_no_folder_can_be_made_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = RunFolder(tmp_path / "file" / "run")
    with pytest.raises(ClimbError, match=r"cannot write .*Not a directory"), folder.claimed(RunConfig(), CPU, {}):
        pass
