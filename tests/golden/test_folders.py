"""Folders and files that the base commit wrote: this version opens them, continues them and comes to the same end.

`make_folders.py` wrote them. On the machine where it ran, results are compared to the bit, elsewhere only the counters.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from generate import digest
from machine import machine_name
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

from climb import Climb
from climb.cli import run_command

FOLDERS = Path(__file__).parent / "folders"
RUN = [
    "run", "demo", "--classes", "2", "--tasks", "2", "--image-size", "16", "--capacity", "50", "--replay-batch", "8",
    "--passes", "1", "--seed", "5", "--device", "cpu",
]  # fmt: skip
LEARN = [
    "learn", "images", "--method", "climb-memory-only", "--size", "edge", "--image-size", "16", "--budget", "50",
    "--replay-batch", "8", "--seed", "6", "--device", "cpu",
]  # fmt: skip
IMAGES = 100
MODEL_IMAGES = np.random.RandomState(7).randint(0, 256, (90, 16, 16, 3)).astype(np.uint8)
COUNTERS = ("cbp", "gradient_steps", "forward_only_images", "tasks", "method", "preset", "evaluated", "config_hash")
NUMBERS = ("accuracy_matrix", "accuracy_upto", "random_encoder_accuracy", "stored_images", "memory")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """One thread, and a working folder and a cache of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLIMB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CLIMB_DATA", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def expected() -> dict[str, Any]:
    values: dict[str, Any] = json.loads((FOLDERS / "expected.json").read_text(encoding="utf-8"))
    return values


def to_the_bit(expected: dict[str, Any]) -> bool:
    """Whether this is the machine that computed the expected values."""
    return bool(expected["machine"] == machine_name())


def copied(name: str, to: Path) -> Path:
    return Path(shutil.copytree(FOLDERS / name, to))


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()]


def outcome_of_run(folder: Path) -> dict[str, Any]:
    """Counters, and numbers that depend on the machine, of a finished run."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return {
        "counters": {key: result[key] for key in COUNTERS},
        "numbers": {key: result[key] for key in NUMBERS},
        "encoder": digest(load_file(folder / "model.safetensors")),
    }


def learner_tree(folder: Path) -> dict[str, Any]:
    """The plain values of a learner's checkpoint."""
    with safe_open(str(folder / "checkpoint" / "state.safetensors"), framework="pt") as handle:
        tree: dict[str, Any] = json.loads(handle.metadata()["climb"])["tree"]
    return tree


def outcome_of_learner(folder: Path) -> dict[str, Any]:
    """Counters and weights of a learner."""
    tree = learner_tree(folder)
    return {
        "counters": {"budget": tree["engine"]["budget"], "learned": tree["learned"], "done": tree["done"]},
        "numbers": {"tally": tree["tally"]},
        "encoder": digest(load_file(folder / "model.safetensors")),
    }


def check(outcome: dict[str, Any], expected: dict[str, Any], *, exact: bool) -> None:
    assert outcome["counters"] == expected["counters"]
    if exact:
        assert outcome == expected


def test_an_interrupted_run_resumes(expected: dict[str, Any], tmp_path: Path) -> None:
    folder = copied("run-interrupted", tmp_path / "run")
    before = journal(folder)
    assert run_command([*RUN, "--out", str(folder)]) == 0
    lines = journal(folder)
    assert lines[: len(before)] == before
    assert [line["batch"] for line in lines if line["event"] == "start"] == [0, 37]
    assert max(line["batch"] for line in lines) == 54
    check(outcome_of_run(folder), expected["run"], exact=to_the_bit(expected))


def test_a_finished_run_is_not_repeated(expected: dict[str, Any], tmp_path: Path) -> None:
    folder = copied("run-finished", tmp_path / "run")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".json", ".jsonl")}
    assert run_command([*RUN, "--out", str(folder)]) == 0
    assert {name: (folder / name).read_bytes() for name in before} == before
    check(outcome_of_run(folder), expected["run"], exact=True)
    assert run_command(["report", str(folder)]) == 0
    assert run_command(["table", str(folder)]) == 0


def test_other_settings_do_not_continue_a_run(tmp_path: Path) -> None:
    folder = copied("run-interrupted", tmp_path / "run")
    assert run_command([*RUN, "--lr", "0.01", "--out", str(folder)]) == 2


def test_an_interrupted_learner_resumes(expected: dict[str, Any], tmp_path: Path) -> None:
    folder, images = copied("learner", tmp_path / "learner"), write_images(tmp_path / "images")
    stopped = learner_tree(folder)
    names = sorted(images.iterdir())
    identities = np.array([identity(path) for path in names[: stopped["learned"]]], dtype=np.uint64)
    identities.tofile(folder / "learned.u64")
    assert 0 < stopped["learned"] < IMAGES
    before = journal(folder)
    assert run_command([*LEARN, "--out", str(folder)]) == 0
    lines = journal(folder)
    assert lines[: len(before)] == before
    assert [line["batch"] for line in lines if line["event"] == "start"] == [0, stopped["done"]]
    learned = np.fromfile(folder / "learned.u64", dtype=np.uint64)
    assert sorted(learned) == sorted(identity(path) for path in names)
    check(outcome_of_learner(folder), expected["learner"], exact=to_the_bit(expected))


def test_a_saved_model_learns_on(expected: dict[str, Any]) -> None:
    model = Climb.load(FOLDERS / "model.climb", device="cpu")
    assert model.engine_.budget.images == 60
    features = model.transform(MODEL_IMAGES)
    continued = model.partial_fit(MODEL_IMAGES[60:]).transform(MODEL_IMAGES)
    assert model.engine_.budget.images == 90
    assert np.isfinite(features).all()
    assert np.isfinite(continued).all()
    if to_the_bit(expected):
        digests = {"features": digest(torch.from_numpy(features)), "continued": digest(torch.from_numpy(continued))}
        assert digests == expected["model"]


def test_a_saved_encoder_embeds(expected: dict[str, Any], tmp_path: Path) -> None:
    model = Climb.load(FOLDERS / "run-finished" / "model.safetensors", device="cpu", precision="float32")
    features = model.transform(MODEL_IMAGES)
    assert features.shape == (90, 128)
    if to_the_bit(expected):
        assert digest(torch.from_numpy(features)) == expected["encoder"]["features"]
    images = write_images(tmp_path / "images", 8)
    assert run_command(["embed", str(FOLDERS / "run-finished"), str(images), "--out", "features.npy"]) == 0
    assert run_command(["export", str(FOLDERS / "run-finished"), "--out", "exported"]) == 0
    stored = load_file(FOLDERS / "run-finished" / "model.safetensors")
    exported = load_file(tmp_path / "exported" / "model.safetensors")
    assert sum(tensor.numel() for tensor in exported.values()) == sum(tensor.numel() for tensor in stored.values())


# -- images --------------------------------------------------------------------------------------------------------


def write_images(folder: Path, count: int = IMAGES) -> Path:
    """A folder of PNG files. Their names sort in the order in which a learner finds them."""
    folder.mkdir(parents=True)
    random = np.random.RandomState(8)
    patterns = random.randint(0, 256, (6, 4, 4, 3)).repeat(4, axis=1).repeat(4, axis=2)
    for number in range(count):
        noisy = patterns[number % 6] + random.randint(-30, 31, (16, 16, 3))
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(folder / f"{number:03d}.png")
    return folder


def identity(path: Path) -> int:
    """What a learner's list of learned images has for a file. It is a file format, so it is computed here anew."""
    status = os.stat(path)
    text = "\0".join([os.path.abspath(path), str(status.st_size), str(status.st_mtime_ns)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
