from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from climb.errors import InputError
from climb.serve import discovery
from climb.serve.discovery import DEEPEST, Runs, find_runs
from climb.serve.watched_run import readable


def test_runs_at_any_depth(runs: Path) -> None:
    (runs / "notes").mkdir()
    (runs / "notes" / "config.json").write_text('{"name": "a package"}')
    (runs / "list").mkdir()
    (runs / "list" / "config.json").write_text("[1]")
    (runs / "broken").mkdir()
    (runs / "broken" / "config.json").write_text("{")
    shutil.copytree(runs / "climb-0", runs / ".hidden")
    deep = runs.joinpath(*["d"] * (DEEPEST + 1))
    shutil.copytree(runs / "climb-0", deep)
    assert find_runs(runs) == ["broken", "climb-0", "sweep/fifo-1"]  # unreadable runs are listed


def test_the_root_as_a_run_has_no_name(runs: Path) -> None:
    (run,) = Runs(runs / "climb-0").all()
    assert (run.name, run.title) == ("", "climb-0")


def test_links_are_not_followed(runs: Path, tmp_path: Path) -> None:
    outside = Path(shutil.copytree(runs / "climb-0", tmp_path / "outside"))
    os.symlink(outside, runs / "a-link")
    (runs / "linked-config").mkdir()
    os.symlink(outside / "config.json", runs / "linked-config" / "config.json")
    assert find_runs(runs) == ["climb-0", "sweep/fifo-1"]


def test_a_new_run_appears(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "FRESH", 0.0)
    monkeypatch.setattr(discovery, "SHARE", 0)
    watched = Runs(runs)
    first = watched.get("climb-0")
    assert len(watched.all()) == 2
    shutil.copytree(runs / "climb-0", runs / "another")
    assert [run.name for run in watched.all()] == ["another", "climb-0", "sweep/fifo-1"]
    assert watched.get("climb-0") is first  # its cache survives


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder"):
        Runs(tmp_path / "nothing")


def test_only_files_inside_the_root_are_readable(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_text("")
    for name in ("secret", "root-old"):
        (tmp_path / name).write_text("")
    os.symlink(tmp_path / "secret", root / "link")
    os.symlink(root / "file", root / "fine")
    os.symlink(root / "loop", root / "loop")
    os.mkfifo(root / "pipe")
    assert readable(root, root / "file")
    assert readable(root, root / "fine")
    for name in ("link", "loop", "pipe", "nothing", "../secret", "../root-old", "a\0b", "x" * 5000):
        assert not readable(root, root / name), name
