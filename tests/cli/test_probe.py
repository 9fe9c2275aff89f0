"""`climb probe`: its table and its JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from climb import Climb

Command = Callable[..., Any]


@pytest.fixture
def run() -> Path:
    """What a learner saved, in a folder as training leaves it."""
    images = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
    learner = Climb(capacity=60, backbone="micro", replay_batch=8, device="cpu").partial_fit(images)
    learner.save(Path("run/model.safetensors"))
    return Path("run")


def test_the_table_and_the_file_say_the_same(climb: Command, run: Path, tree: Path) -> None:
    said = climb("probe", run, tree, "--out", "probe.json", "--device", "cpu")
    assert said.code == 0, said.err
    found = json.loads(Path("probe.json").read_text())
    assert (found["classes"], found["train_images"], found["test_images"]) == (4, 48, 12)
    assert f"{run} on {tree}\n4 classes, 48 training and 12 test images\n" in said.out
    lines = said.out.splitlines()
    for row, own in (("encoder", found), ("start", found["start"]), ("thumbnails", found["thumbnails"])):
        line = next(line for line in lines if f" {row} " in line)
        for name in ("linear", "knn", "ridge"):
            assert f"{own[f'{name}_accuracy']:.2f} ± {own[f'{name}_error']:.2f}" in line
    assert "25.00" in next(line for line in lines if "most common class" in line)
    assert "start: micro, random weights of seed 0" in lines
    assert any(line.startswith("read the kNN probe: ") for line in lines)
    assert f"warning: {found['warnings'][0]}" in lines
    assert max(len(line) for line in lines if line.startswith(("│", "┃", "start", "read"))) <= 80


def test_few_shots(climb: Command, run: Path, tree: Path) -> None:
    said = climb("probe", run, tree, "--shots", 2, "--draws", 3)
    assert said.code == 0, said.err
    assert "trained on 2 per class, mean of 3 draws" in said.out
    assert said.out.count("±") == 16  # the heading, and five rows of three


def test_bad_input(climb: Command, run: Path, tree: Path) -> None:
    said = climb("probe", run, tree / "train" / "ant")
    assert said.code == 2
    assert "1 class; a probe needs at least two" in said.err
    said = climb("probe", tree, tree)
    assert said.code == 2
    assert "contains no model.safetensors; MODEL is a folder of climb run" in said.err
    said = climb("probe", run, tree, "--shots", 0)
    assert said.code == 2
    assert "shots is 0" in said.err


def test_an_audit(climb: Command, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "unlabelled"
    folder.mkdir()
    for number in range(100):
        pixels = np.random.default_rng(number).integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    said = climb("probe", run, folder, "--audit", "--device", "cpu", "--out", "audit.json")
    assert said.code == 0, said.err
    found = json.loads(Path("audit.json").read_text())
    for name, numbers in found["attributes"].items():
        line = next(line for line in said.out.splitlines() if f" {name} " in line)
        assert f"{numbers['gain_accuracy']:+.2f} ± {numbers['gain_error']:.2f}" in line
        assert len(line) <= 80
    said = climb("probe", run, folder, "--audit", "--shots", 3)
    assert said.code == 2
    assert "--audit uses no labels" in said.err
