from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CONFIG: dict[str, Any] = {
    "format_version": 1,
    "config_hash": "0123456789abcdef",
    "config": {
        "recipe": "demo",
        "seed": 7,
        "data": {"dataset": "synthetic", "image_size": None, "options": {}},
        "stream": {"kind": "regular", "tasks": 3, "options": {}, "manifest": None},
        "learner": {"method": "climb", "preset": "paper", "lr": 0.3, "memory": {"capacity": 240}},
        "evaluation": {"network": "teacher", "epochs": 100, "knn": False, "ridge": False},
    },
    "execution": {"device": "auto", "data_root": None},
    "versions": {"climb": "0.1.0", "torch": "2.13.0", "device_name": "a very good CPU"},
}
MATRIX = [[50.0, 10.0, 20.0], [40.0, 60.0, 30.0], [45.0, 55.0, 65.0]]
UPTO = [80.0, 70.0, 55.0]
RESULT: dict[str, Any] = {
    "final_accuracy": 55.0,
    "continual_accuracy": 51.67,
    "continual_accuracy_upto": 68.33,
    "continual_accuracy_all": 41.67,
    "forward_accuracy": 20.0,
    "forgetting": 5.0,
    "final_accuracy_per_image": 55.0,
    "random_encoder_accuracy": 25.4,
    "accuracy_matrix": MATRIX,
    "accuracy_upto": UPTO,
    "cbp": 117192,
    "gradient_steps": 810,
    "forward_only_images": 100992,
    "stored_images": 189,
    "memory_bytes": 757760,
    "memory_bounded": True,
    "memory": {"promoted": 2},
    "seconds": {"train": 46.07, "evaluate": 2.97, "total": 1049.04},
    "method": "climb",
    "preset": "paper",
    "dataset": "synthetic",
    "seed": 7,
    "tasks": 3,
    "evaluated": "teacher",
    "precision": "float32",
    "engine": "eager",
    "deterministic": True,
    "config_hash": CONFIG["config_hash"],
    "versions": {"climb": "0.1.0", "torch": "2.13.0", "device_name": "a very good CPU"},
}


def train(batch: int, **values: Any) -> dict[str, Any]:
    return {"batch": batch, "event": "train", "objective": 4.0 / batch, "alignment": None, "stored": batch, **values}


def evaluation(task: int, network: str = "teacher") -> dict[str, Any]:
    rows = {"per_task": MATRIX[task], "upto": UPTO[task]}
    return {"batch": 10 * (task + 1), "event": "evaluation", "network": network, "task": task, **rows}


FLOOR = {"batch": 0, "event": "floor", "teacher": 25.4}
JOURNAL: list[dict[str, Any]] = [
    FLOOR,
    *(
        line
        for task in range(3)
        for line in (
            train(
                10 * task + 5, alignment=-0.9, stm_images=30 - task, ltm_images=12 * task, promoted=task, threshold=0.4
            ),
            evaluation(task),
        )
    ),
]


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """``make_run(journal=..., result=None)`` writes a run folder: by default a finished run of three tasks."""

    def make(
        *,
        config: dict[str, Any] = CONFIG,
        journal: list[dict[str, Any]] = JOURNAL,
        result: dict[str, Any] | None = RESULT,
    ) -> Path:
        folder = tmp_path / "run"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in journal))
        if result is not None:
            (folder / "result.json").write_text(json.dumps(result))
        return folder

    return make
