"""`climb embed`: what is typed, what is written, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from climb import Climb

Command = Callable[..., Any]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A learner's file."""
    images = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
    learner = Climb(capacity=60, backbone="micro", replay_batch=8, device="cpu").partial_fit(images)
    learner.save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_it_says_what_it_wrote(climb: Command, model: Path, tree: Path) -> None:
    said = climb("embed", model, tree, "--out", "out/features.npy", "--device", "cpu")
    assert said.code == 0, said.err
    assert said.out == "60 images, 128 features each: out/features.npy (paths: out/features.paths.txt)\n"
    assert np.load("out/features.npy").shape == (60, 128)
    assert Path("out/features.paths.txt").read_text().splitlines()[0] == str(tree / "test/ant/0.png")


def test_parquet(climb: Command, model: Path, tree: Path) -> None:
    said = climb("embed", model, tree / "train" / "bee", "--out", "features.parquet")
    assert (said.code, said.out) == (0, "12 images, 128 features each: features.parquet\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ["MODEL", "TREE", "--out", "features.csv"],
            "features must end in .npy or .parquet, not features.csv",
        ),
        (["nowhere", "TREE", "--out", "f.npy"], "nowhere does not exist"),
        (["MODEL", "nowhere", "--out", "f.npy"], "'nowhere' does not exist"),
        (["MODEL", "TREE", "--out", "f.npy", "--device", "gpu"], "unknown device 'gpu'"),
        (["MODEL", "TREE"], "--out"),
    ],
)
def test_bad_input(climb: Command, model: Path, tree: Path, arguments: list[str], complaint: str) -> None:
    places = {"MODEL": str(model), "TREE": str(tree)}
    said = climb("embed", *(places.get(argument, argument) for argument in arguments))
    assert said.code == 2
    assert complaint in said.err
    assert not Path("f.npy").exists()
