"""One bad input of each kind: refused before any training, with a message that says what to do."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from climb.cli import verbs
from climb.engine import Engine

Climb = Callable[..., Any]
Prepare = Callable[[Path], None]


@pytest.fixture(autouse=True)
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def observe(self: Engine, images: torch.Tensor) -> None:
        raise AssertionError("trained on bad input")

    monkeypatch.setattr(Engine, "observe", observe)


# -- data --------------------------------------------------------------------------------------------------------------


def unreadable(tree: Path) -> None:
    (tree / "train" / "bee" / "3.png").write_bytes(b"no picture")


def empty(tree: Path) -> None:
    shutil.rmtree(tree)
    tree.mkdir()


def class_missing_from_test(tree: Path) -> None:
    shutil.rmtree(tree / "test" / "cat")


def class_only_in_test(tree: Path) -> None:
    shutil.rmtree(tree / "train" / "cat")


def missing(tree: Path) -> None:
    shutil.rmtree(tree)


def flat(tree: Path) -> None:
    (tree / "train" / "bee" / "3.png").rename(tree.parent / "3.png")
    shutil.rmtree(tree)
    tree.mkdir()
    (tree.parent / "3.png").rename(tree / "3.png")


@pytest.mark.parametrize(
    ("damage", "messages"),
    [
        (unreadable, ["1 of 60 images cannot be read (at most 1% may be skipped)", "{tree}/train/bee/3.png"]),
        (empty, ["{tree} holds no image", ".png"]),
        (class_missing_from_test, ["cat", "no image", "test"]),
        (class_only_in_test, ["has classes that", "cat"]),
        (missing, ["{tree}", "does not exist"]),
        (flat, ["test", "no image"]),
    ],
)
def test_a_folder_that_cannot_be_learned_from(
    damage: Prepare, messages: list[str], tree: Path, climb: Climb, small: list[str], tmp_path: Path
) -> None:
    damage(tree)
    tasks = ["--tasks", "1"] if damage is flat else []
    said = climb("run", "folder", "--data", tree, *small, *tasks, "--out", tmp_path / "run")
    assert said.code == 2
    assert said.err.splitlines()[-1].startswith("climb: ")
    for message in messages:
        assert message.format(tree=tree) in said.err
    assert not (tmp_path / "run").exists()


def test_without_a_network_the_folders_that_were_searched_are_named(climb: Climb, tmp_path: Path) -> None:
    said = climb("run", "cifar100-20", "--data", tmp_path / "data", "--out", tmp_path / "run")
    assert said.code == 1
    assert "no network" in said.err
    assert f"{tmp_path / 'data'}, {tmp_path / 'data' / 'cifar-100-python'}" in said.err
    assert not (tmp_path / "run").exists()


def cifar(root: Path, labels: list[int]) -> None:
    pixels = np.zeros((len(labels), 3072), dtype=np.uint8)
    for name in ("train", "test"):
        (root / name).write_bytes(pickle.dumps({b"data": pixels, b"fine_labels": labels}))
    (root / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"x"] * 100}))


def wrong_count(root: Path) -> None:
    cifar(root, [0, 1, 2])


def corrupt(root: Path) -> None:
    cifar(root, [0])
    (root / "train").write_bytes(b"\x80\x02garbage")


def incomplete(root: Path) -> None:
    cifar(root, [0])
    (root / "meta").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (wrong_count, "holds 3 images; expected 50000"),
        (corrupt, "is not a readable pickle"),
        (incomplete, "lacks meta"),
    ],
)
def test_a_cifar_folder_that_is_not_one(damage: Prepare, message: str, climb: Climb, tmp_path: Path) -> None:
    root = tmp_path / "cifar-100-python"
    root.mkdir()
    damage(root)
    said = climb("run", "cifar100-20", "--data", tmp_path, "--out", tmp_path / "run")
    assert said.code == 2
    assert message in said.err
    assert str(root) in said.err
    assert not (tmp_path / "run").exists()


# -- names and options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["demmo"], ["unknown recipe 'demmo'; did you mean 'demo'?", "cifar100-20"]),
        (["--weights", "pretraind"], ["weights 'pretraind' do not exist; did you mean 'pretrained'?", ".pth"]),
        (["--weights", "pretrained"], ["backbone 'micro' comes without pretrained weights", "efficientnet-lite0"]),
        (["--backbone", "efficientnet-lite"], ["unknown backbone", "did you mean 'efficientnet-lite0'?", "timm/NAME"]),
        (["--backbone", "hf:nowhere"], ["'hf:"]),
        (["--method", "clim"], ["unknown method 'clim'; did you mean 'climb'?", "cla-e"]),
        (["--dataset", "cifra100"], ["unknown dataset 'cifra100'; did you mean 'cifar100'?", "synthetic"]),
        (["--preset", "papre"], ["unknown preset 'papre'; did you mean 'paper'?", "default, paper, reference"]),
        (
            ["--preset", "reference", "--faults", "batch-views"],
            ["the preset reference has the faults", "leave --faults"],
        ),
        (["--faults", "batch-vews"], ["unknown fault 'batch-vews'; did you mean 'batch-views'?", "swapped-refresh"]),
        (
            ["--method", "cla-e", "--faults", "batch-views", "frozen-aligner"],
            ["fault 'frozen-aligner' changes nothing in method 'cla-e'; leave it out. Allowed: batch-views"],
        ),
        (
            ["--method", "er-fifo", "--prune", "selective"],
            ["prune 'selective' changes nothing in method 'er-fifo'; leave it out", "methods climb, climb-memory-only"],
        ),
        (["--backbone", "resnet19"], ["unknown backbone 'resnet19'; did you mean 'resnet18'?", "micro"]),
        (["--scenario", "regulr"], ["unknown kind of stream 'regulr'; did you mean 'regular'?", "blurred, iid"]),
        (["--device", "gpu"], ["unknown device 'gpu'. Allowed: auto, cpu, cuda, cuda:N, mps"]),
        (["--sedd", "3"], ["Unrecognized options: --sedd", "--seed"]),
        (["--evaluate", "student2"], ["unknown evaluate 'student2'; did you mean 'student'?", "teacher", "both"]),
        (["--tasks", "two"], ["--tasks", "two"]),
        (["--tasks", "99"], ["10 classes cannot be cut into 99 tasks; use 1 to 10 tasks"]),
        (["--tasks", "0"], ["tasks must be 1 or more, not 0"]),
        (["--passes", "0"], ["passes must be at least 1; given 0"]),
        (["--lr", "0"], ["lr must be above 0 and finite; given 0.0"]),
        (["--lr", "nan"], ["lr must be above 0 and finite; given nan"]),
        (["--alignment-weight", "-1"], ["alignment_weight must be at least 0 and finite; given -1.0"]),
        (["--replay-batch", "200"], ["replay_batch must be at most half of capacity: 200 > 240 / 2"]),
        (["--image-size", "4"], ["image_size must be at least 8; given 4"]),
        (["--precision", "tf32", "--device", "cpu"], ["tf32 exists on CUDA devices only"]),
        (["--data", "."], ["dataset 'synthetic' takes no root"]),
        (["--dataset", "folder"], ["dataset 'folder' needs the folder of the images"]),
        (["--manifest", "missing.json"], ["cannot read the scenario missing.json"]),
    ],
)
def test_what_run_refuses(arguments: list[str], messages: list[str], climb: Climb, tmp_path: Path) -> None:
    said = climb("run", *arguments, "--out", tmp_path / "run")
    assert said.code == 2
    for message in messages:
        assert message in said.err
    assert not said.out
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot read the scenario"),
        ("\xff\xd8", "cannot read the scenario"),
        ("[]", "a manifest must be a JSON object"),
        ('{"kind": "regular", "seed": 0, "tasks": [[0], [1]], "colour": 1}', "unknown key in the manifest 'colour'"),
        ('{"kind": "regular", "seed": 0, "tasks": [[0], [1]]}', "classes 0 to 1"),
        ('{"format_version": 99, "kind": "regular", "seed": 0, "tasks": [[0]]}', "format_version 99"),
    ],
)
def test_a_scenario_that_cannot_be_replayed(content: str, message: str, climb: Climb, tmp_path: Path) -> None:
    (tmp_path / "scenario.json").write_bytes(content.encode("latin-1"))
    said = climb("run", "--manifest", tmp_path / "scenario.json", "--out", tmp_path / "run")
    assert said.code == 2
    assert message in said.err


@pytest.mark.parametrize("verb", [[], ["fly"], ["lern"]])
def test_a_verb_that_is_none(verb: list[str], climb: Climb) -> None:
    said = climb(*verb)
    assert said.code == 2
    assert not said.out
    assert all(name in said.err for name in [*verb, *verbs()])
