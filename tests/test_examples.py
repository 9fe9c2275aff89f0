"""The examples run, and what they register shows up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from climb.checks import check_method
from climb.cli import run_command
from climb.methods import METHODS

EXAMPLES = Path(__file__).parents[1] / "examples"
REGISTERED = {
    "own_memory": ("er-random-slot", "RandomSlotMemory"),
    "own_objective": ("climb-close-and-even", "CloseAndEven"),
    "own_alignment": ("stay-near", "StayNear"),
    "own_method": ("minred-targets", "StoredTargets"),
}
"""The method that an example registers, and one of its parts."""


def test_every_example_is_known_and_short() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert [file.stem for file in files] == sorted(REGISTERED)
    for file in files:
        source = file.read_text(encoding="utf-8")
        assert len(source.splitlines()) < 60, file.name
        assert f'check_method("{REGISTERED[file.stem][0]}")' in source
    assert "check_memory(" in (EXAMPLES / "own_memory.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REGISTERED)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0, found.stderr
    assert REGISTERED[name][0] in found.stdout


@pytest.mark.parametrize("name", REGISTERED)
def test_a_package_brings_it_by_its_entry_point(
    name: str, install: Callable[[str, str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """To wherever a method is named: the list with its parts, the help, a bench, the checks."""
    method, part = REGISTERED[name]
    assert method not in METHODS
    install(f"climb_brings_{name}", (EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))

    def said(*command: str) -> str:
        try:
            code: object = run_command(command)
        except SystemExit as left:  # how the argument parser leaves after its help
            code = left.code
        assert code == 0
        return capsys.readouterr().out

    assert {method, part} <= set(said("methods").split())
    assert f", {method}" in " ".join(said("run", "--help").replace("│", " ").split())
    bench = ("bench", "table-regular", "--tasks", "20", "--seeds", "1", "--plan")
    assert "2 runs (0 done), 2 to do" in said(*bench, "--methods", "climb", method)
    check_method(method)
