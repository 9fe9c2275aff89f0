from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from climb.engine import Engine
from climb.methods.build import build_engine
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.settings.presets import apply_preset

MEMORY = MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=4, images_per_centroid=6, window=100)
SIDE = 16


@pytest.fixture
def make_engine() -> Callable[..., Engine]:
    """``make_engine("climb", "paper", seed=1, lr=0.1)``: a small engine at its first step."""

    def make(method: str = "climb", preset: str = "default", *, seed: int = 0, **changes: Any) -> Engine:
        config = LearnerConfig(method=method, backbone="micro", image_size=SIDE, replay_batch=8, memory=MEMORY)
        return build_engine(
            replace(apply_preset(config, preset), **changes),
            mean=(0.5, 0.5, 0.5),
            std=(0.25, 0.25, 0.25),
            seed=seed,
            device=torch.device("cpu"),
            precision="float32",
            kind="eager",
        )

    return make


@pytest.fixture
def images() -> Callable[..., torch.Tensor]:
    """``images(n, seed)``: n different blobs of colour, easier to tell apart than noise."""

    def draw(n: int = 10, seed: int = 0) -> torch.Tensor:
        coarse = torch.rand(n, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
        return (255 * torch.nn.functional.interpolate(coarse, SIDE, mode="bilinear")).to(torch.uint8)

    return draw
