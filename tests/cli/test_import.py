"""`--import FILE`: parts from a file, without packaging."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from climb.augment import POLICIES
from climb.methods import METHODS

Climb = Callable[..., Any]

PARTS = '''
from climb.augment import Policy, views
from climb.methods import er_fifo, method


@method("mine", paper="me", lr=0.05)
def mine(w):
    """A method of my own."""
    return er_fifo(w)


@views("coloured")
def coloured(image_size):
    """Views in colour."""
    return Policy(grayscale=0.0)
'''


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file. Its parts leave the registries with this module."""
    path = tmp_path_factory.mktemp("parts") / "my_parts.py"
    path.write_text(PARTS)
    with METHODS.scoped(), POLICIES.scoped():
        yield path


def test_the_parts_can_be_named_and_the_run_continues(climb: Climb, parts: Path, tree: Path, small: list[str]) -> None:
    command = ["run", "folder", "--data", tree, *small, "--method", "mine", "--import", parts, "--out", "out"]
    assert climb(*command).code == 0
    header = json.loads(Path("out/config.json").read_text())
    assert header["config"]["learner"]["lr"] == 0.05
    assert header["execution"]["imports"] == [str(parts)]
    assert climb(*command).code == 0


def test_a_learner_takes_them_too(climb: Climb, parts: Path, tree: Path) -> None:
    options = ["--size", "edge", "--image-size", "16", "--budget", "60", "--device", "cpu", "--out", "out"]
    assert climb("learn", tree, "--import", parts, "--method", "mine", *options).code == 0


def test_help_names_them(climb: Climb, parts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "mine" in climb("learn", "--import", parts, "--help").out


def test_a_process_of_its_own_has_them_before_names_are_checked(parts: Path) -> None:
    command = [sys.executable, "-m", "climb", "tune", "demo", "--method", "mine", "--over", "lr=0.1,0.2", "--plan"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 2
    done = subprocess.run([*command, "--import", str(parts)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 combinations of lr" in done.stdout


@pytest.mark.slow
def test_the_jobs_of_a_grid_carry_the_file_to_their_processes(parts: Path) -> None:
    command = [sys.executable, "-m", "climb", "bench", "table-pruning", "--scale", "tiny", "--tasks", "20"]
    options = ["--seeds", "1", "--methods", "mine", "--import", parts.name, "--device", "cpu", "--out", "out"]
    done = subprocess.run([*command, *options], cwd=parts.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| mine |" in (parts.parent / "out" / "table-pruning" / "table.md").read_text()


@pytest.mark.parametrize(
    ("content", "message"), [(None, "it must be an existing Python file"), ("1 / 0", "ZeroDivisionError")]
)
def test_files_that_cannot_be_imported(climb: Climb, tmp_path: Path, content: str | None, message: str) -> None:
    file = tmp_path / "broken_parts.py"
    if content is not None:
        file.write_text(content)
    failed = climb("run", "--import", file, "--out", tmp_path / "out")
    assert failed.code == 2
    assert message in failed.err
    assert not (tmp_path / "out").exists()
