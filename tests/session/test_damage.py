"""Damaged, edited and foreign files of a folder: named in one line, or the previous checkpoint is used."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from climb import Climb
from climb.errors import ClimbError, InputError
from climb.export import open_model
from climb.runs import Journal, RunFolder
from climb.session import Interrupted, execute, learn
from climb.settings.config import Execution, RunConfig
from climb.state import load_tree, save_tree

Write = Callable[..., Path]
Small = dict[str, Any]
OFTEN = {"checkpoint_seconds": 0.0, "journal_seconds": 0.0}


def flip(path: Path, place: int = -1) -> None:
    body = bytearray(path.read_bytes())
    body[place] ^= 1
    path.write_bytes(body)


def images(out: Path) -> list[int]:
    return sorted(np.fromfile(out / "learned.u64", dtype=np.uint64).tolist())


@pytest.fixture
def whole(fill: Write, small: Small, tmp_path: Path) -> Path:
    """A learner of 60 images, with a checkpoint after each mini-batch."""
    learn(fill(tmp_path / "images", 60), out=tmp_path / "whole", **small, **OFTEN)
    return tmp_path / "whole"


@pytest.fixture
def out(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "out"))


def test_after_a_flipped_bit_a_learner_continues_from_the_previous_checkpoint_to_the_same_bits(
    out: Path, whole: Path, small: Small, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip(out / "checkpoint" / "state.safetensors")
    learned = learn(tmp_path / "images", out=out, **small, **OFTEN)
    (warning,) = [line["text"] for line in Journal(out / "journal.jsonl").read("warning")]
    assert f"{out / 'checkpoint' / 'state.safetensors'} is damaged" in warning
    assert "1 mini-batches (10 images) are lost" in warning
    assert any(warning in message for message in caplog.messages)
    assert (learned.images, learned.new_images) == (60, 10)
    assert images(out) == images(whole)
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    lines = [line["batch"] for line in Journal(out / "journal.jsonl").read("train")]
    assert lines == [1, 2, 3, 4, 5, 6]
    assert RunFolder(out).load_checkpoint() is not None


def test_nothing_is_trained_on_after_a_flipped_bit_in_the_list_of_learned_images(
    out: Path, small: Small, tmp_path: Path
) -> None:
    for place in (0, 100, 479):
        flip(out / "learned.u64", place)
        with pytest.raises(ClimbError, match=r"learned\.u64 is damaged: .*start over in another folder$"):
            learn(tmp_path / "images", out=out, **small)
        flip(out / "learned.u64", place)
    assert learn(tmp_path / "images", out=out, **small).new_images == 0


def test_a_learner_of_images_that_are_gone_saves_the_previous_state_again(small: Small, tmp_path: Path) -> None:
    def pictures(count: int) -> Iterator[np.ndarray]:
        yield from np.random.default_rng(0).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)

    out = tmp_path / "out"
    learn(pictures(40), out=out, **small, **OFTEN)
    flip(out / "checkpoint" / "state.safetensors")
    learned = learn(pictures(0), out=out, **small, **OFTEN)
    assert learned.images == 30
    state = RunFolder(out).load_checkpoint()
    assert state is not None
    assert RunFolder(out).lost(state) == ""
    whole = learn(pictures(30), out=tmp_path / "whole", **small).folder
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_a_run_continues_from_its_previous_checkpoint_to_the_same_result(
    make_config: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(evaluation={"network": "both"})
    expected = execute(config, Execution(device="cpu"), tmp_path / "whole")
    save, often = RunFolder.save_checkpoint, Execution(device="cpu", checkpoint_seconds=0.0)

    def stopping(self: RunFolder, state: dict[str, Any]) -> None:
        save(self, state)
        if state["done"] == 9:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save_checkpoint", stopping)
        with pytest.raises(Interrupted):
            execute(config, often, tmp_path / "run")
    flip(tmp_path / "run" / "checkpoint" / "state.safetensors", 200)
    result = execute(config, often, tmp_path / "run")
    assert {**result, "seconds": 0} == {**expected, "seconds": 0}
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert models[0] == models[1]
    assert not (tmp_path / "run" / "checkpoint").exists()


def branches(tree: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The way to every value of nested state."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        yield (*path, key)
        yield from branches(value, *path, key)


def edited(tree: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A copy of nested state with one value changed, or removed if the change gives ... ."""
    key, *rest = path
    value = edited(tree[key], tuple(rest), change) if rest else change(tree[key])
    if isinstance(tree, list):
        changed = [value if number == key else other for number, other in enumerate(tree)]
        return [item for item in changed if item is not ...]
    copy = {**tree, key: value}
    if value is ...:
        del copy[key]
    return copy


def other_shape(value: Any) -> Any:
    return torch.zeros(3, 1, 5) if isinstance(value, torch.Tensor) else "text"


CHANGES = {"gone": lambda value: ..., "text": lambda value: "text", "shape": other_shape}


@pytest.mark.parametrize("change", CHANGES)
def test_edits_of_a_checkpoint_are_named(change: str, fill: Write, small: Small, tmp_path: Path) -> None:
    """With new checksums, as an editor of the file could write them."""
    folder, out = fill(tmp_path / "images", 20), tmp_path / "out"
    learn(folder, out=out, **small)
    path = RunFolder(out).checkpoint_path
    tree = load_tree(path, kind="checkpoint")
    accepted = []
    for branch in [("engine",), ("engine", "budget", "images"), *((name,) for name in tree if name != "engine")]:
        save_tree(path, edited(tree, branch, CHANGES[change]), kind="checkpoint")
        try:
            learn([], out=out, **small)
        except ClimbError as error:
            if str(out) not in str(error) or "\n" in str(error):  # a wrong digest makes learned.u64 wrong
                pytest.fail(f"{branch}: {error}")
        else:
            accepted.append(branch[-1])
    assert set(accepted) <= {"run", "pending", "observers", "learned_crc32", "images"}  # older files may lack them


def test_files_of_another_run_are_refused(out: Path, fill: Write, small: Small, tmp_path: Path) -> None:
    learn(tmp_path / "images", out=tmp_path / "other", **small, seed=1)
    for name in ("model.safetensors", "learned.u64", "checkpoint/state.safetensors"):
        kept = (out / name).read_bytes()
        shutil.copy(tmp_path / "other" / name, out / name)
        if name == "model.safetensors":
            with pytest.raises(InputError, match=r"model\.safetensors is the encoder of another run \(config_hash"):
                open_model(out, device="cpu")
        elif name == "learned.u64":  # the same images in another order
            if (out / name).read_bytes() == kept:
                os.truncate(out / name, 100)
            with pytest.raises(ClimbError, match=r"learned\.u64"):
                learn(tmp_path / "images", out=out, **small)
        else:
            assert learn(tmp_path / "images", out=out, **small).new_images == 10
        (out / name).write_bytes(kept)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1"])
@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_json_in_another_encoding_is_named(
    name: str, encoding: str, make_config: Callable[..., RunConfig], tmp_path: Path
) -> None:
    execute(make_config(), Execution(device="cpu"), tmp_path / "run")
    path = tmp_path / "run" / name
    path.write_text(json.dumps({"ä": "ö"}, ensure_ascii=False), encoding=encoding)
    with pytest.raises(InputError, match=f"cannot read {path}"):
        execute(make_config(), Execution(device="cpu"), tmp_path / "run")


@pytest.mark.parametrize("method", ["climb", "er-reservoir", "minred"])
def test_edits_of_a_saved_model_are_named(method: str, tmp_path: Path) -> None:
    path = tmp_path / "model.climb"
    pictures = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
    options: dict[str, Any] = {"capacity": 60, "backbone": "micro", "replay_batch": 8, "device": "cpu"}
    Climb(method=method, **options).partial_fit(pictures).save(path)
    tree = load_tree(path, kind="model")
    rejected = 0
    for branch in branches(tree):
        if sum(isinstance(key, int) and key > 0 for key in branch):
            continue  # further items of a list
        for change in CHANGES.values():
            save_tree(path, edited(tree, branch, change), kind="model")
            try:
                Climb.load(path, device="cpu")
            except ClimbError as error:
                rejected += 1
                if str(path) not in str(error) or "\n" in str(error):
                    pytest.fail(f"{branch}: {error}")
    assert rejected > 100
