"""A run on a GPU that was told to repeat its bits, in processes of its own: CUDA reads its settings once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from climb.runs.run_file_checks import read_object

pytestmark = pytest.mark.gpu


def started(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "climb", "run", "demo", "--device", "cuda", "--deterministic", "--out", str(folder)]
    )


def assert_same_bits(folder: Path, expected: Path) -> None:
    assert (folder / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()
    ours, theirs = (read_object(path / "result.json") for path in (folder, expected))
    assert ours["accuracy_matrix"] == theirs["accuracy_matrix"]
    assert ours["memory"] == theirs["memory"]


def test_two_runs_have_the_same_bits(tmp_path: Path) -> None:
    both = [started(tmp_path / name) for name in ("one", "other")]
    assert [run.wait() for run in both] == [0, 0]
    assert_same_bits(tmp_path / "one", tmp_path / "other")


def test_a_run_that_was_stopped_has_the_bits_of_one_that_was_not(tmp_path: Path) -> None:
    whole, stopped = started(tmp_path / "whole"), started(tmp_path / "stopped")
    journal = tmp_path / "stopped" / "journal.jsonl"
    while stopped.poll() is None and not (journal.exists() and '"batch": 101,' in journal.read_text()):
        time.sleep(0.05)
    stopped.send_signal(signal.SIGINT)
    assert stopped.wait() != 0
    assert started(tmp_path / "stopped").wait() == 0
    assert whole.wait() == 0
    assert_same_bits(tmp_path / "stopped", tmp_path / "whole")
