"""Statistics that normalise CIFAR-10 and Tiny-ImageNet: in new runs, under the preset reference, in older folders."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from climb.datasets.dataset import DATASETS, RELEASED
from climb.datasets.tiny_imagenet import MEASURED
from climb.nets import load_encoder
from climb.runs import RunFolder
from climb.session import execute
from climb.session.configure import experiment
from climb.session.experiments import open_session
from climb.settings.config import RENORMALISED, Execution, RunConfig, to_dict
from climb.settings.presets import ADAPT, PRESETS

Make = Callable[..., RunConfig]
OLDER_HASHES = {
    "cifar10-5": {"default": "588efc6307d75320", "paper": "88ef0ba123697d7a", "reference": "f250d097a743efc6"},
    "tiny-imagenet-20": {"default": "1aba67d56c81c7c3", "paper": "6737d735236d9c4a", "reference": "4f4b212c240137cb"},
    "cifar100-20": {"default": "1623539cdde9ab03", "paper": "7718f17ef30be8bc", "reference": "be1858be892d7d01"},
}
"""Hashes of the recipes before normalisation was a setting."""


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Tiny-ImageNet with two classes of twelve noisy images."""
    base = tmp_path / "tiny-imagenet-200"
    (base / "val/images").mkdir(parents=True)
    lines = []
    for name in ("n1", "n2"):
        (base / f"train/{name}/images").mkdir(parents=True)
        for number in range(12):
            Image.effect_noise((64, 64), 40).save(base / f"train/{name}/images/{number}.JPEG")
        Image.effect_noise((64, 64), 40).save(base / f"val/images/{name}.JPEG")
        lines.append(f"{name}.JPEG\t{name}\t0\t0\t62\t62")
    (base / "val/val_annotations.txt").write_text("\n".join(lines))
    (base / "wnids.txt").write_text("n1\nn2\n")
    (base / "words.txt").write_text("n1\tant\nn2\tbee\n")
    return tmp_path


def test_the_datasets_that_leave_a_choice() -> None:
    takes = [name for name, kind in DATASETS.items() if "normalisation" in inspect.signature(kind.load).parameters]
    assert sorted(takes) == sorted(RENORMALISED)


@pytest.mark.parametrize("preset", [preset for preset in PRESETS if preset != ADAPT])  # which is younger
@pytest.mark.parametrize("recipe", OLDER_HASHES)
def test_the_preset_decides_and_only_new_statistics_make_another_run(recipe: str, preset: str) -> None:
    config = experiment(recipe, preset=preset)
    chosen = config.resolved().data.normalisation
    assert chosen == (None if recipe == "cifar100-20" else "released" if preset == "reference" else "measured")
    assert (config.config_hash() == OLDER_HASHES[recipe][preset]) == (chosen != "measured")


@pytest.mark.parametrize(
    ("preset", "statistics"), [("default", MEASURED), ("paper", MEASURED), ("reference", RELEASED)]
)
def test_a_run_is_normalised_as_its_preset_says(preset: str, statistics: object, make_config: Make, tiny: Path) -> None:
    config = make_config(preset=preset, data={"dataset": "tiny-imagenet", "options": {}}, learner={"stream_batch": 4})
    execute(config, Execution(device="cpu", data_root=str(tiny)), tiny / "run")
    saved = load_encoder(tiny / "run" / "model.safetensors")
    assert (tuple(saved.mean), tuple(saved.std)) == statistics


def test_a_folder_of_an_older_version_continues_under_its_constants(tmp_path: Path, tiny: Path) -> None:
    options: dict[str, Any] = {"tasks": 2, "backbone": "micro"}
    new, old = tmp_path / "new", tmp_path / "old"
    config = experiment("tiny-imagenet-20", **options)
    older = replace(config, data=replace(config.data, normalisation="released"))
    header: dict[str, Any] = {
        "format_version": 1,
        "config_hash": older.config_hash(),
        "config": to_dict(older.resolved()),
    }
    del header["config"]["data"]["normalisation"]
    old.mkdir()
    (old / "config.json").write_text(json.dumps(header))
    for folder, statistics in ((new, MEASURED), (old, RELEASED)):
        config = experiment("tiny-imagenet-20", out=folder, **options)
        RunFolder(folder).check(config)
        session = open_session(config, Execution(data_root=str(tiny)), RunFolder(folder), torch.device("cpu"))
        assert (session.feed.mean, session.feed.std) == statistics
