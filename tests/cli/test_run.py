"""`climb run` on a folder of images, start to end, and its exit codes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from climb.engine import Engine, Observation
from climb.errors import ClimbError
from climb.runs import Journal
from climb.runs.run_file_checks import read_object

Climb = Callable[..., Any]


def test_trains_evaluates_and_prints_a_table(climb: Climb, tree: Path, small: list[str], tmp_path: Path) -> None:
    command = ["run", "folder", "--data", tree, *small, "--seed", "4", "--knn", "--ridge", "--out", tmp_path / "run"]
    said = climb(*command)
    assert said.code == 0
    result = read_object(tmp_path / "run" / "result.json")
    assert (result["dataset"], result["tasks"], result["seed"]) == ("folder", 2, 4)
    assert "climb (default) on folder, 2 tasks, seed 4" in said.out
    for text in ("random encoder", "FA", "CA", "forgetting", "kNN", "ridge", "promotions", str(tmp_path / "run")):
        assert text in said.out
    assert f"{result['final_accuracy']:.2f}" in said.out
    assert f"{result['cbp']:,} backward passes" in said.out
    assert "\r" not in said.err  # no live line where nobody looks
    again = climb(*command)
    assert (again.code, again.out) == (0, said.out)
    other = climb(*command, "--lr", "0.1")
    assert other.code == 2
    assert "holds another run (learner.lr: 0.3 there, 0.1 given)" in other.err


def test_only_what_a_run_has_is_named_at_its_end(climb: Climb, tree: Path, small: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "run [1]"  # no markup
    said = climb("run", "folder", "--data", tree, *small, "--method", "finetune", "--out", folder)
    assert said.code == 0
    assert "memory: none" in said.out
    assert f"folder: {folder} (report.html, result.json, accuracy.png, model.safetensors)" in said.out
    said = climb("run", "folder", "--data", tree, *small, "--method", "er-fifo", "--out", tmp_path / "flat")
    assert "promotions" not in said.out
    assert re.search(r"memory: \d+ images, \d\.\d MB\n", said.out)


def test_options_reach_the_configuration(climb: Climb, tree: Path, small: list[str], tmp_path: Path) -> None:
    said = climb(
        "run", "folder", "--data", tree, *small, "--method", "climb-fifo", "--preset", "paper", "--passes", "1",
        "--lr", "0.02", "--alignment-weight", "0.25", "--views", "common", "--faults", "batch-views", "frozen-aligner",
        "--scenario", "iid", "--evaluate", "both", "--out", tmp_path / "run",
    )  # fmt: skip
    assert said.code == 0
    config = read_object(tmp_path / "run" / "config.json")["config"]
    learner = config["learner"]
    assert (learner["method"], learner["preset"], learner["passes"]) == ("climb-fifo", "paper", 1)
    assert (learner["lr"], learner["alignment_weight"], learner["ema_period"]) == (0.02, 0.25, "batch")
    assert (learner["augment_per_batch"], learner["train_aligner"], learner["swapped_refresh"]) == (True, False, False)
    assert (learner["backbone"], learner["image_size"], learner["replay_batch"]) == ("micro", 16, 8)
    assert (learner["memory"]["capacity"], learner["views"]) == (60, "common")
    assert (config["stream"]["kind"], config["stream"]["tasks"]) == ("iid", 2)
    assert config["evaluation"]["network"] == "both"
    assert "student" in said.out
    assert "teacher" in said.out


def test_a_preset_brings_the_rates_of_its_image_size(
    climb: Climb, tree: Path, small: list[str], tmp_path: Path
) -> None:
    assert climb("run", "folder", "--data", tree, *small, "--preset", "paper", "--out", tmp_path / "run").code == 0
    learner = read_object(tmp_path / "run" / "config.json")["config"]["learner"]
    assert (learner["lr"], learner["alignment_weight"]) == (0.3, 2.0)


def test_the_folder_is_named_after_the_run(climb: Climb, tree: Path, small: list[str]) -> None:
    assert climb("run", "folder", "--data", tree, *small, "--preset", "paper", "--seed", "7").code == 0
    assert Path("runs/folder-paper-2tasks-7/result.json").exists()


def test_a_run_is_not_written_among_its_images(
    climb: Climb, tree: Path, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would find itself as one more class, and the same command would not continue it."""
    classes = tree / "train"
    said = climb("run", "folder", "--data", classes, *small, "--out", classes / "run")
    assert said.code == 2
    assert "lies among the images of" in said.err
    assert "give --out elsewhere" in said.err
    assert not (classes / "run").exists()
    monkeypatch.chdir(classes)
    assert climb("run", "folder", "--data", ".", *small).code == 2
    assert climb("run", "folder", "--data", tree, *small, "--out", tree / "run").code == 0  # beside train and test


def test_a_scenario_of_another_run_is_replayed(climb: Climb, tree: Path, small: list[str], tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert climb("run", "folder", "--data", tree, *small, "--out", first).code == 0
    without_tasks = [word for word in small if word not in ("--tasks", "2")]
    scenario = ["--manifest", str(first / "scenario.json"), "--out", str(second)]
    said = climb("run", "folder", "--data", tree, *without_tasks, *scenario)
    assert said.code == 0
    assert climb("run", "folder", "--data", tree, *small, *scenario).code == 2  # --tasks beside it
    ours, theirs = (read_object(path / "result.json") for path in (first, second))
    assert ours["accuracy_matrix"] == theirs["accuracy_matrix"]


def test_a_failure_while_working_exits_with_one(
    climb: Climb, tree: Path, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Engine, images: torch.Tensor) -> Observation:
        raise ClimbError("the disk is full")

    monkeypatch.setattr(Engine, "observe", fails)
    said = climb("run", "folder", "--data", tree, *small, "--out", tmp_path / "run")
    assert (said.code, said.err.splitlines()[-1]) == (1, "climb: the disk is full")


def test_a_signal_exits_with_130_and_the_same_command_continues(
    climb: Climb, tree: Path, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe = Engine.observe

    def signalled(self: Engine, images: torch.Tensor) -> Observation:
        os.kill(os.getpid(), signal.SIGINT)
        return observe(self, images)

    command = ["run", "folder", "--data", tree, *small, "--out", tmp_path / "run"]
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "observe", signalled)
        said = climb(*command)
    assert said.code == 130
    assert "interrupted; the same command continues" in said.err
    assert climb(*command).code == 0


def test_a_signal_that_comes_when_the_result_is_being_written_does_not_make_it_an_interrupted_run(
    climb: Climb, tree: Path, small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climb.session.results.draw_plots", lambda *arguments: os.kill(os.getpid(), signal.SIGINT))
    said = climb("run", "folder", "--data", tree, *small, "--out", tmp_path / "run")
    assert said.code == 0
    assert "interrupted" not in said.err
    assert f"folder: {tmp_path / 'run'} (report.html, result.json" in said.out


def test_a_verb_that_begins_anew_does_not_promise_to_continue(climb: Climb, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("climb.cli.lists.recipes", interrupted)
    said = climb("recipes")
    assert (said.code, said.err) == (130, "climb: interrupted\n")


@pytest.mark.slow(seconds=45)
def test_a_real_process_stopped_from_outside(climb: Climb, tmp_path: Path) -> None:
    """Twice, on a stream long enough that each signal arrives in its midst: the bits are those of a run left alone."""
    options = ["--image-size", "16", "--replay-batch", "16", "--passes", "1", "--device", "cpu"]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    command = [sys.executable, "-m", "climb", "run", "demo", *options, "--out", str(stopped)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}

    def learned(times: int) -> int:
        """Mini-batches told of since the run was started that many times."""
        lines = Journal(stopped / "journal.jsonl").read()
        starts = [line["batch"] for line in lines if line["event"] == "start"]
        return lines[-1]["batch"] - starts[-1] if len(starts) == times else 0

    for times, (number, code) in enumerate([(signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)], start=1):
        process = subprocess.Popen([*command, "--checkpoint-seconds", "0"], env=environment)
        deadline = time.monotonic() + 600
        try:
            while learned(times) < 21:
                assert time.monotonic() < deadline, "the run did not learn 21 mini-batches"
                assert process.poll() is None, "the run ended before it could be stopped"
                time.sleep(0.02)
            process.send_signal(number)
            assert process.wait(timeout=600) == code
        finally:
            process.kill()
        assert not (stopped / "result.json").exists()
    for folder in (stopped, whole):
        assert climb("run", "demo", *options, "--out", folder).code == 0
    ours, theirs = (read_object(folder / "result.json") for folder in (stopped, whole))
    del ours["seconds"], theirs["seconds"]
    assert ours == theirs
    assert (stopped / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    journals = [Journal(folder / "journal.jsonl").read() for folder in (stopped, whole)]
    starts = [[line["batch"] for line in lines if line["event"] == "start"] for lines in journals]
    assert starts[1] == [0]
    assert len(starts[0]) == 3
    assert 0 < starts[0][1] < starts[0][2]  # each went on from where the one before was stopped
    ours, theirs = ([line for line in lines if line["event"] != "start"] for lines in journals)
    assert ours == theirs
