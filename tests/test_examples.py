"""The examples run, and what they register shows up."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from climb.cli import run_command
from climb.methods import METHODS
from climb.workshop import OBJECTIVES

EXAMPLES = Path(__file__).parents[1] / "examples"
REGISTERED = {
    "own_memory": "er-random-slot",
    "own_objective": "climb-close-and-even",
    "own_alignment": "stay-near",
    "own_method": "minred-targets",
}


@pytest.fixture
def unchanged_registries() -> Iterator[None]:
    """What a test registers is gone after it."""
    methods, objectives = dict(METHODS), dict(OBJECTIVES)
    yield
    for registry, before in ((METHODS, methods), (OBJECTIVES, objectives)):
        registry.clear()
        registry.update(before)  # type: ignore[arg-type]


def test_every_example_is_known_and_short() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert [file.stem for file in files] == sorted(REGISTERED)
    for file in files:
        source = file.read_text(encoding="utf-8")
        assert len(source.splitlines()) < 60, file.name
        assert f'check_method("{REGISTERED[file.stem]}")' in source
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
    assert REGISTERED[name] in found.stdout


@pytest.mark.usefixtures("unchanged_registries")
@pytest.mark.parametrize(("name", "method"), REGISTERED.items())
def test_what_it_registers_is_listed(name: str, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert method not in METHODS
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert METHODS[method].summary != method
    assert run_command(["methods"]) == 0
    assert f" {method} " in capsys.readouterr().out
