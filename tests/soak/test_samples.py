"""A small sample of each part of the soak test (``make soak`` runs them whole)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize(
    ("part", "trials"),
    [("kills.py", 18), ("malformed_images.py", 90), ("damage.py", 60), ("arguments.py", 150)],
)
def test_a_sample_of_the_soak_test(part: str, trials: int) -> None:
    command = [sys.executable, str(FOLDER / part), "--trials", str(trials), "--seed", "7"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " 0 failures" in ran.stdout.splitlines()[-1]
