"""The command line across processes: `torchrun ... -m climb run`, as people type it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from climb.cli import BAD_INPUT, run_command
from climb.runs.run_file_checks import read_object

TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--nproc-per-node",
    "2",
    "--master-port",
    "0",
    "--standalone",
]
SETTINGS = [
    *("run", "demo", "--classes", "2", "--image-size", "16", "--tasks", "2", "--stream-batch", "27"),
    *("--capacity", "120", "--replay-batch", "24", "--passes", "1", "--lr", "0.0003", "--device", "cpu"),
    *("--precision", "float32"),  # a rounding of bf16 changes what the memory keeps
]


def climb(processes: int, *arguments: str | Path) -> subprocess.Popen[str]:
    start = [sys.executable] if processes == 1 else TORCHRUN
    return subprocess.Popen(
        [*start, "-m", "climb", *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that whatever torchrun started can be ended with it
    )


def finished(process: subprocess.Popen[str], out: Path) -> tuple[str, dict[str, Any]]:
    try:
        said = process.communicate(timeout=1000)[0]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, said
    return said, read_object(out / "result.json")


@pytest.mark.slow(seconds=40)
def test_two_processes_find_what_one_does_and_one_continues_what_two_began(tmp_path: Path) -> None:
    one = finished(climb(1, *SETTINGS, "--out", tmp_path / "one"), tmp_path / "one")[1]

    out = tmp_path / "two"
    said, two = finished(climb(2, *SETTINGS, "--out", out), out)
    assert said.count("final accuracy") == 1  # the first process speaks for all
    assert (one["processes"], two["processes"]) == (1, 2)
    for key in ("cbp", "gradient_steps", "forward_only_images", "stored_images", "memory_bytes", "config_hash"):
        assert two[key] == one[key], key
    for key in ("final_accuracy", "continual_accuracy", "validation_accuracy", "random_encoder_accuracy"):
        assert two[key] == pytest.approx(one[key], abs=2), key
    assert two["memory"] == pytest.approx(one["memory"], rel=1e-3)
    lines = {
        name: [
            line["objective"]
            for line in map(json.loads, (tmp_path / name / "journal.jsonl").read_text().splitlines())
            if line["event"] == "train"
        ]
        for name in ("one", "two")
    }
    assert lines["two"] == pytest.approx(lines["one"], abs=1e-3)

    out = tmp_path / "continued"
    began = climb(2, *SETTINGS, "--checkpoint-seconds", "0", "--out", out)
    try:
        deadline = time.monotonic() + 600
        while not (out / "checkpoint" / "state.safetensors").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        began.terminate()
        began.communicate(timeout=600)
    finally:
        if began.poll() is None:
            os.killpg(began.pid, signal.SIGKILL)
    assert not (out / "result.json").exists()
    continued = finished(climb(1, *SETTINGS, "--out", out), out)[1]
    starts = [
        (line["batch"] > 0, line["processes"])
        for line in map(json.loads, (out / "journal.jsonl").read_text().splitlines())
        if line["event"] == "start"
    ]
    assert starts == [(False, 2), (True, 1)]
    assert continued["gradient_steps"] == one["gradient_steps"]
    assert continued["final_accuracy"] == pytest.approx(one["final_accuracy"], abs=2)


def test_other_verbs_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    assert run_command(["methods"]) == BAD_INPUT
    assert "'climb run'" in capsys.readouterr().err
