"""A small sample of each part of the soak test (``make soak`` runs them whole)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SAMPLES = {
    "kills.py": 18,
    "damage.py": 60,
    "malformed_images.py": 90,
    "arguments.py": 150,
    "server.py": 110,
    "pages.py": 25,
    "limits.py": 10,
}
"""Trials of each part."""


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize(("part", "trials"), SAMPLES.items())
def test_a_sample_of_the_soak_test(part: str, trials: int) -> None:
    command = [sys.executable, str(FOLDER / part), "--trials", str(trials), "--seed", "7"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " 0 failures" in ran.stdout.splitlines()[-1]


def test_every_part_has_a_sample_and_is_run_by_make() -> None:
    parts = {path.name for path in FOLDER.glob("*.py")} - {"conftest.py", "trials.py", "test_samples.py"}
    assert parts == set(SAMPLES)
    makefile = (FOLDER.parents[1] / "Makefile").read_text(encoding="utf-8")
    assert set(re.findall(r"tests/soak/(\w+\.py)", makefile)) == parts
