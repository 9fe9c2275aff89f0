"""Write `folders/`: runs, a learner and a model as the base commit leaves them, and what they become if continued.

    python tests/golden/make_folders.py

It patches internals to stop at a known mini-batch, so it runs on the base commit only. Do not run it again after a
change of behaviour: these files stand for those of users, which newer versions must continue.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported

import torch
from generate import digest
from machine import machine_name
from test_folders import FOLDERS, LEARN, MODEL_IMAGES, RUN, outcome_of_learner, outcome_of_run, write_images

from climb import Climb
from climb.cli import run_command

STOP_RUN, STOP_LEARN = 37, 6
FIGURES = ("accuracy.png", "memory.png", "report.html")


def stopped(command: list[str], batch: int) -> None:
    """Run a command and send it SIGINT while it learns from mini-batch number ``batch``."""
    from climb.engine import Engine  # here, so that pytest can import this file after a rename

    observe, seen = Engine.observe, 0

    def watched(self: Engine, images: torch.Tensor) -> Any:
        nonlocal seen
        seen += 1
        if seen == batch:
            os.kill(os.getpid(), signal.SIGINT)
        return observe(self, images)

    Engine.observe = watched  # type: ignore[method-assign]
    try:
        assert run_command(command) == 130
    finally:
        Engine.observe = observe  # type: ignore[method-assign]


def main() -> None:
    torch.set_num_threads(1)
    shutil.rmtree(FOLDERS, ignore_errors=True)
    FOLDERS.mkdir()
    expected: dict[str, Any] = {"machine": machine_name()}

    stopped([*RUN, "--out", str(FOLDERS / "run-interrupted")], STOP_RUN)
    assert run_command([*RUN, "--out", str(FOLDERS / "run-finished")]) == 0
    expected["run"] = outcome_of_run(FOLDERS / "run-finished")

    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)  # the journal names the folder of images as it was typed
        write_images(Path("images"))
        stopped([*LEARN, "--out", str(FOLDERS / "learner")], STOP_LEARN)
        assert run_command([*LEARN, "--out", "whole"]) == 0
        expected["learner"] = outcome_of_learner(Path("whole"))
        os.chdir(FOLDERS)
    (FOLDERS / "learner" / "learned.u64").unlink()  # names images by path and time: the test writes its own

    small = {"capacity": 40, "backbone": "micro", "image_size": 16, "replay_batch": 8, "passes": 1, "device": "cpu"}
    model = Climb(method="er-fifo", seed=4, **small)
    model.partial_fit(MODEL_IMAGES[:60]).save(FOLDERS / "model.climb")
    features = torch.from_numpy(model.transform(MODEL_IMAGES))
    continued = torch.from_numpy(model.partial_fit(MODEL_IMAGES[60:]).transform(MODEL_IMAGES))
    expected["model"] = {"features": digest(features), "continued": digest(continued)}

    encoder = torch.from_numpy(Climb.load(FOLDERS / "run-finished", device="cpu").transform(MODEL_IMAGES))
    expected["encoder"] = {"features": digest(encoder)}
    # A learner writes its encoder again.
    large = ["learner/model.safetensors", *("run-finished/" + name for name in FIGURES)]
    for path in [*FOLDERS.glob("*/*lock"), *(FOLDERS / name for name in large)]:
        path.unlink()
    (FOLDERS / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
