"""`climb learn`, as one types it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climb.runs.run_file_checks import read_object

Climb = Callable[..., Any]
SMALL = [
    "--backbone", "micro", "--image-size", "16", "--passes", "1", "--replay-batch", "8", "--budget", "60",
    "--device", "cpu",
]  # fmt: skip


def test_learns_says_what_and_continues(climb: Climb, tree: Path, tmp_path: Path) -> None:
    (tree / "broken.png").write_bytes(b"no image")
    command = ["learn", tree, "--out", tmp_path / "out", *SMALL]
    said = climb(*command)
    assert said.code == 0
    assert "learned 60 new images, 60 in total" in said.out
    assert "passed over: 1 not an image" in said.out
    assert "of 60 images" in said.out
    assert str(tmp_path / "out") in said.out
    assert "\r" not in said.err  # no live line where nobody looks
    again = climb(*command)
    assert "learned 0 new images, 60 in total" in again.out
    other = climb(*command, "--lr", "0.1")
    assert other.code == 2
    assert "holds another run" in other.err


def test_a_signal_that_comes_when_all_is_learned_does_not_make_it_an_interrupted_learner(
    climb: Climb, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climb.session.results.save_encoder", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
    said = climb("learn", tree, "--out", tmp_path / "out", *SMALL)
    assert said.code == 0
    assert "interrupted" not in said.err
    assert "learned 60 new images" in said.out
    assert json.loads((tmp_path / "out" / "journal.jsonl").read_text().splitlines()[-1])["event"] == "end"


def test_what_is_there_is_named_and_nothing_else(climb: Climb, tree: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    nothing = climb("learn", tmp_path / "empty", "--out", tmp_path / "[/out]", *SMALL)
    assert f"folder: {tmp_path / '[/out]'} (journal.jsonl)" in nothing.out
    something = climb("learn", tree, "--out", tmp_path / "[/out]", *SMALL)
    assert f"folder: {tmp_path / '[/out]'} (model.safetensors, journal.jsonl, checkpoint)" in something.out


def test_options_reach_the_configuration(climb: Climb, tree: Path, tmp_path: Path) -> None:
    said = climb(
        "learn", tree, "--out", tmp_path / "out", "--size", "edge", "--image-size", "16", "--budget", "0.2MB",
        "--method", "cla-e", "--preset", "paper", "--seed", "3", "--stream-batch", "6", "--device", "cpu",
    )  # fmt: skip
    assert said.code == 0
    config = read_object(tmp_path / "out" / "config.json")["config"]
    learner = config["learner"]
    assert (config["seed"], learner["method"], learner["preset"], learner["stream_batch"]) == (3, "cla-e", "paper", 6)
    assert 200_000 * 0.98 <= learner["memory"]["capacity"] * 3 * 16 * 16 <= 200_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "--out", "x"], "'nowhere' does not exist. Allowed: a folder"),
        (["-", "--out", "x", "--watch"], "watch follows a folder"),
        ([".", "--out", "x", "--method", "iid"], "it needs all images at once"),
    ],
)
def test_bad_input_is_said_and_leaves_nothing(climb: Climb, arguments: list[str], message: str) -> None:
    said = climb("learn", *arguments, "--device", "cpu")
    assert said.code == 2
    assert message in said.err
    assert not Path("x").exists()
