from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from climb.settings.config import DataConfig, EvaluationConfig, LearnerConfig, MemoryConfig, RunConfig, StreamConfig
from climb.settings.presets import apply_preset

Write = Callable[..., Path]

SMALL: dict[str, Any] = {
    "backbone": "micro",
    "image_size": 16,
    "passes": 1,
    "replay_batch": 8,
    "budget": 100,
    "device": "cpu",
}


@pytest.fixture
def small() -> dict[str, Any]:
    """Settings that learn hundreds of images a second."""
    return dict(SMALL)


@pytest.fixture
def fill() -> Write:
    """``fill(folder, count)`` writes different pictures of 16 px, named by number."""

    def write(folder: Path, count: int, *, first: int = 0) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(first, first + count):
            coarse = np.random.default_rng(number).integers(0, 256, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((16, 16), Image.Resampling.BICUBIC).save(folder / f"{number:05d}.png")
        return folder

    return write


@pytest.fixture
def make_config() -> Callable[..., RunConfig]:
    """``make_config(seed=1, learner={"lr": 0.1})``: a run of 14 mini-batches and two tasks, under a second."""

    def make(*, seed: int = 0, preset: str = "default", **changes: dict[str, Any]) -> RunConfig:
        learner = LearnerConfig(
            backbone="micro",
            image_size=16,
            replay_batch=8,
            memory=MemoryConfig(capacity=40, stm_centroids=10, ltm_centroids=3, images_per_centroid=5, window=50),
        )
        parts = {
            "data": DataConfig(image_size=16, options={"classes": 4, "train_per_class": 40, "test_per_class": 10}),
            "stream": StreamConfig(tasks=2),
            "learner": apply_preset(learner, preset),
            "evaluation": EvaluationConfig(network="teacher", epochs=4),
        }
        parts = {name: replace(part, **changes.get(name, {})) for name, part in parts.items()}
        return RunConfig(seed=seed, **parts)

    return make


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], float]], None]:
    """``set_clock(lambda: now)`` replaces the monotonic clock of sessions."""

    def replace_clock(monotonic: Callable[[], float]) -> None:
        clock = SimpleNamespace(monotonic=monotonic, time=time.time)
        for module in ("session", "feeds", "journal_lines", "progress", "evaluation"):
            monkeypatch.setattr(f"climb.session.{module}.time", clock)

    return replace_clock
