"""`climb export`: what is typed, what is written, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from climb import Climb

Command = Callable[..., Any]


@pytest.fixture
def run(climb: Command, tree: Path, small: list[str]) -> Path:
    """A finished run."""
    said = climb("run", "folder", "--data", tree, *small, "--passes", 1, "--out", "run")
    assert said.code == 0, said.err
    return Path("run")


def test_both_formats(climb: Command, run: Path, tree: Path) -> None:
    said = climb("export", run, "--format", "safetensors", "onnx")
    assert (said.code, said.out, said.err) == (0, "run/export/README.md\n", "")
    assert sorted(file.name for file in Path("run/export").iterdir()) == [
        "README.md",
        "config.json",
        "encoder.py",
        "model.onnx",
        "model.safetensors",
    ]
    session = onnxruntime.InferenceSession("run/export/model.onnx")
    (features,) = session.run(None, {"images": np.zeros((3, 3, 16, 16), np.uint8)})
    assert features.shape == (3, 128)
    assert climb("embed", "run/export", tree, "--out", "a.npy").code == 0
    assert climb("embed", run, tree, "--out", "b.npy").code == 0
    assert np.array_equal(np.load("a.npy"), np.load("b.npy"))


@pytest.mark.parametrize("verb", ["embed", "probe", "search", "export"])
def test_help(climb: Command, verb: str) -> None:
    said = climb(verb, "--help")
    assert (said.code, said.err) == (0, "")
    assert f"usage: climb {verb}" in said.out
    assert "MODEL" in said.out


@pytest.fixture
def saved() -> Path:
    """What a learner saved, in a folder as training leaves it."""
    images = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
    learner = Climb(capacity=60, backbone="micro", replay_batch=8, device="cpu").partial_fit(images)
    learner.save(Path("run/model.safetensors"))
    return Path("run")


def test_bad_input(climb: Command, saved: Path) -> None:
    for arguments, complaint in (
        (["nowhere"], "nowhere does not exist"),
        ([saved, "--out", saved], "run is not empty and not an export"),
        ([saved, "--format", "torchscript"], "torchscript"),
        ([saved, "--push", "encoder"], "needs a repository OWNER/NAME, not 'encoder'"),
    ):
        said = climb("export", *arguments)
        assert said.code == 2
        assert complaint in said.err
    assert not Path("run/export").exists()


def test_a_push_that_fails_leaves_the_export(climb: Command, saved: Path) -> None:
    said = climb("export", saved, "--push", "someone/encoder")  # no network in these tests
    assert said.code == 1
    assert "nothing was uploaded to someone/encoder" in said.err
    assert Path("run/export/model.safetensors").is_file()
