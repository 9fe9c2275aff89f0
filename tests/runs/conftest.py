from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from climb.config import DataConfig, EvaluationConfig, LearnerConfig, MemoryConfig, RunConfig, StreamConfig
from climb.presets import apply_preset


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
