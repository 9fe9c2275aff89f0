"""`--pixel-range` of the verbs: stored with the learner, used with its model, and replaceable there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

SMALL = ("--size", "edge", "--device", "cpu", "--image-size", 16)
Command = Callable[..., Any]


@pytest.fixture
def infrared(tmp_path: Path) -> Path:
    """Two classes of 16-bit images."""
    for number in range(24):
        values = np.random.default_rng(number).integers(7000, 8001, (20, 20)).astype(np.uint16)
        path = tmp_path / "infrared" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values).save(path)
    return tmp_path / "infrared"


def features(climb: Command, model: Path, images: Path, *options: object) -> np.ndarray[tuple[int, ...], Any]:
    out = model.parent / "features.npy"
    said = climb("embed", model, images, "--device", "cpu", "--out", out, *options)
    assert said.code == 0, said.err
    return np.load(out)


def test_a_model_keeps_the_range_of_its_learner(climb: Command, infrared: Path, tmp_path: Path) -> None:
    out = tmp_path / "learner"
    said = climb("learn", infrared, "--out", out, *SMALL, "--pixel-range", 7000, 9000)
    assert said.code == 0, said.err
    assert json.loads((out / "config.json").read_text())["config"]["data"]["options"] == {"pixel_range": [7000, 9000]}
    assert climb("learn", infrared, "--out", out, *SMALL).code == 0  # it continues with its own range
    refused = climb("learn", infrared, "--out", out, *SMALL, "--pixel-range", 7000, 9001)
    assert (refused.code, "pixel_range: [7000.0, 9000.0] there" in refused.err) == (2, True)

    own = features(climb, out, infrared)
    np.testing.assert_array_equal(features(climb, out, infrared, "--pixel-range", 7000, 9000), own)
    assert np.abs(features(climb, out, infrared, "--pixel-range", 7000, 8000) - own).max() > 0.01
    for command in (("probe", out, infrared), ("search", out, infrared / "a" / "0.png", "--in", infrared)):
        assert climb(*command, "--device", "cpu", "--pixel-range", 7000, 8000).code == 0

    assert climb("export", out, "--out", tmp_path / "export").code == 0
    card = (tmp_path / "export" / "README.md").read_text()
    assert "low, high = 7000, 9000" in card
    np.testing.assert_array_equal(features(climb, tmp_path / "export", infrared), own)


def test_a_run_on_a_folder_takes_a_range(climb: Command, infrared: Path, tmp_path: Path) -> None:
    options = ("--data", infrared, "--tasks", 1, "--backbone", "micro", "--image-size", 16, "--capacity", 60)
    small = (*options, "--replay-batch", 4, "--passes", 1, "--device", "cpu")
    said = climb("run", "folder", *small, "--pixel-range", 7000, 9000, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["config"]["data"]
    assert stored["options"] == {"pixel_range": [7000, 9000]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pixel-range", 9000, 7000), "pixel_range must be two finite numbers, the smaller one first"),
        (("--pixel-range", 7000), "--pixel-range"),
        (("--pixel-range", "a", "b"), "--pixel-range"),
        (("--pixel-range", "nan", 1), "pixel_range must be two finite numbers"),
    ],
)
def test_other_values_are_bad_input(
    climb: Command, infrared: Path, tmp_path: Path, arguments: tuple[object, ...], message: str
) -> None:
    said = climb("learn", infrared, "--out", tmp_path / "learner", *SMALL, *arguments)
    assert said.code == 2
    assert message in said.err
    assert not (tmp_path / "learner").exists()


def test_a_dataset_of_fixed_images_takes_no_range(climb: Command, tmp_path: Path) -> None:
    said = climb("run", "--dataset", "synthetic", "--pixel-range", 0, 1, "--out", tmp_path / "run")
    assert said.code == 2
    assert "unknown option 'pixel_range'" in said.err
