"""The examples run, and what they register shows up."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from climb.cli import run_command
from climb.methods import METHODS
from climb.testing import check_method

EXAMPLES = Path(__file__).parents[1] / "examples"
REGISTERED = {
    "own_memory": ("er-random-slot", "RandomSlotMemory"),
    "own_objective": ("climb-close-and-even", "CloseAndEven"),
    "own_alignment": ("stay-near", "StayNear"),
    "own_method": ("minred-targets", "StoredTargets"),
}
"""The method that an example registers, and one of its parts."""
OPTIONS = {
    "own_network": ("--backbone", "two-layers"),
    "own_views": ("--views", "drawings"),
    "own_scenario": ("--scenario", "rare-last"),
}
"""The option that takes the part of an example without a method, and its name."""


def test_every_example_is_known_and_short() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert [file.stem for file in files] == sorted([*REGISTERED, *OPTIONS])
    for file in files:
        source = file.read_text(encoding="utf-8")
        assert len(source.splitlines()) < 60, file.name
        assert file.stem in OPTIONS or f'check_method("{REGISTERED[file.stem][0]}")' in source
    assert "check_memory(" in (EXAMPLES / "own_memory.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*REGISTERED, *OPTIONS])
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
    assert (REGISTERED | {key: (part, option) for key, (option, part) in OPTIONS.items()})[name][0] in found.stdout


@pytest.mark.parametrize("name", REGISTERED)
def test_a_command_imports_it(name: str, registries: None, capsys: pytest.CaptureFixture[str]) -> None:
    file, method = str(EXAMPLES / f"{name}.py"), REGISTERED[name][0]
    bench = ("bench", "table-regular", "--tasks", "20", "--seeds", "1", "--plan", "--import", file)
    assert run_command([*bench, "--methods", "climb", method]) == 0
    assert "2 runs (0 done), 2 to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("verb", "name"), [*(("run", name) for name in OPTIONS), ("learn", "own_network"), ("learn", "own_views")]
)
def test_a_part_without_a_method_is_an_option(verb: str, name: str, registries: None, tmp_path: Path) -> None:
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        (tmp_path / "images").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
    small = ("--device", "cpu", "--image-size", "16", "--out", str(tmp_path / "out"))
    data = ("--classes", "2", "--tasks", "1", "--probe-epochs", "1") if verb == "run" else (str(tmp_path / "images"),)
    command = (verb, *data, "--import", str(EXAMPLES / f"{name}.py"), *OPTIONS[name], *small)
    assert run_command([*command, *(("--size", "edge") if verb == "learn" else ())]) == 0


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
