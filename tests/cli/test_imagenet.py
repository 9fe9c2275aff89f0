"""A generated ImageNet-like tree at 224 px, end to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from climb.runs.run_file_checks import read_object
from climb.session import execute
from climb.settings.config import DataConfig, EvaluationConfig, Execution, MemoryConfig, StreamConfig
from climb.settings.recipes import get_recipe
from climb.state import load_tree

Picture = Callable[..., Path]


def imagenet(root: Path, picture: Picture, *, classes: int, train: int) -> Path:
    for label in range(classes):
        wnid = f"n{label:08}"
        for i in range(train):
            picture(root / f"train/{wnid}/{wnid}_{i}.JPEG", 1000 * label + i, side=48)
        picture(root / f"val/{wnid}/ILSVRC2012_val_{label:08}.JPEG", 1000 * label + 999, side=48)
    return root


@pytest.mark.parametrize("backbone", ["micro", pytest.param("resnet18", marks=pytest.mark.slow(seconds=40))])
def test_the_recipe_on_a_few_classes(backbone: str, tmp_path: Path, picture: Picture) -> None:
    root = imagenet(tmp_path / "imagenet", picture, classes=4, train=11)
    config = get_recipe("imagenet100-20", preset="paper")
    memory = MemoryConfig(capacity=40, stm_centroids=10, ltm_centroids=3, images_per_centroid=5, window=50)
    config = replace(
        config,
        data=DataConfig(dataset="imagenet100", options={"classes": 3}),
        stream=StreamConfig(tasks=2),
        learner=replace(config.learner, backbone=backbone, passes=1, replay_batch=4, memory=memory),
        evaluation=EvaluationConfig(epochs=2),
    )
    result = execute(config, Execution(device="cpu", data_root=str(root)), tmp_path / "run")
    assert (result["dataset"], result["tasks"], result["gradient_steps"]) == ("imagenet100", 2, 3)
    assert 0 < result["stored_images"] <= 40
    model = load_tree(tmp_path / "run" / "model.safetensors", kind="encoder")
    assert (model["backbone"], model["image_size"]) == (backbone, 224)
    assert model["mean"] == [0.485, 0.456, 0.406]


@pytest.mark.slow(seconds=40)
def test_the_command_on_a_hundred_classes(climb: Callable[..., Any], tmp_path: Path, picture: Picture) -> None:
    root = imagenet(tmp_path / "imagenet", picture, classes=100, train=1)
    said = climb(
        "run", "imagenet100-20", "--data", root, "--tasks", "2", "--backbone", "micro", "--capacity", "100",
        "--replay-batch", "4", "--passes", "1", "--device", "cpu", "--out", tmp_path / "run",
    )  # fmt: skip
    assert said.code == 0
    result = read_object(tmp_path / "run" / "result.json")
    assert (result["dataset"], result["recipe"], result["tasks"]) == ("imagenet100", "imagenet100-20", 2)
    assert len(result["accuracy_matrix"]) == 2
