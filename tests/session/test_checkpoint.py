"""Killed while it saves, a learner still has the encoder of what it has learned."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from climb import Climb
from climb.export import open_model
from climb.session import learn

# Dies at a named instant, as if killed there: before the checkpoint is written, or right after.
DIES = """
import json, os, sys
from climb.session import learn
from climb.runs import RunFolder

really = RunFolder.save_checkpoint
def dies(self, state):
    if sys.argv[4] == "after":
        really(self, state)
    os._exit(9)
RunFolder.save_checkpoint = dies
learn(sys.argv[1], out=sys.argv[2], **json.loads(sys.argv[3]))
"""


@pytest.mark.parametrize("instant", ["before", "after"])
def test_killed_between_the_two_files_of_a_checkpoint(
    instant: str, fill: Callable[..., Path], small: dict[str, Any], tmp_path: Path
) -> None:
    folder, out = fill(tmp_path / "images", 40), tmp_path / "out"
    command = [sys.executable, "-c", DIES, str(folder), str(out), json.dumps(small), instant]
    assert subprocess.run(command, check=False).returncode == 9
    learned = learn(folder, out=out, **small)
    assert (learned.images, learned.new_images) == (40, 40 if instant == "before" else 0)
    whole = learn(folder, out=tmp_path / "whole", **small).folder
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert open_model(out, device="cpu").saved.image_size == small["image_size"]


def test_an_encoder_that_was_moved_away_is_written_again_though_nothing_is_new(
    fill: Callable[..., Path], small: dict[str, Any], tmp_path: Path
) -> None:
    folder, out = fill(tmp_path / "images", 20), tmp_path / "out"
    learn(folder, out=out, **small)
    (out / "model.safetensors").rename(tmp_path / "mine.safetensors")
    assert learn(folder, out=out, **small).new_images == 0
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "mine.safetensors").read_bytes()


def test_a_state_from_before_centroids_knew_their_birth(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    model = Climb(capacity=60, backbone="micro", replay_batch=8, passes=1, device="cpu").partial_fit(images)
    assert model.memory_ is not None
    older = model.memory_.state_dict()
    del older["born"]
    model.memory_.load_state_dict(older)
    assert set(model.memory_.state_dict()["born"].tolist()) == {-1}
    model.partial_fit(images)
    assert max(model.memory_.state_dict()["born"].tolist()) >= 60
