from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from climb import Climb
from climb.nets import SavedEncoder, build_network, save_encoder
from climb.session import execute
from climb.settings.config import (
    DataConfig,
    EvaluationConfig,
    Execution,
    LearnerConfig,
    MemoryConfig,
    RunConfig,
    StreamConfig,
)

MEAN, STD = (0.45, 0.5, 0.55), (0.2, 0.25, 0.3)


def trained_like(backbone: str, side: int) -> SavedEncoder:
    """An encoder whose every parameter and statistic has left its start: zeros and ones would hide mistakes."""
    generator = torch.Generator().manual_seed(7)
    encoder = build_network(backbone, side, generator=generator).encoder
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.02)
        encoder.train()(torch.randn(16, 3, side, side, generator=generator))
    return SavedEncoder(encoder=encoder.eval(), backbone=backbone, image_size=side, mean=MEAN, std=STD)


@pytest.fixture
def encoder_file(tmp_path: Path) -> Callable[..., Path]:
    """``encoder_file("micro", 16)``: the file that training leaves behind."""

    def write(backbone: str = "micro", side: int = 16, name: str = "model.safetensors") -> Path:
        save_encoder(tmp_path / name, trained_like(backbone, side))
        return tmp_path / name

    return write


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, its last checkpoint thrown away as usual."""
    learner = LearnerConfig(
        backbone="micro",
        image_size=16,
        replay_batch=8,
        memory=MemoryConfig(capacity=40, stm_centroids=10, ltm_centroids=3, images_per_centroid=5, window=50),
    )
    config = RunConfig(
        data=DataConfig(image_size=16, options={"classes": 4, "train_per_class": 40, "test_per_class": 10}),
        stream=StreamConfig(tasks=2),
        learner=learner,
        evaluation=EvaluationConfig(epochs=4),
    )
    folder = tmp_path_factory.mktemp("runs") / "small"
    execute(config, Execution(device="cpu"), folder)
    return folder


def noise(n: int, seed: int = 0, side: int = 16) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 3), dtype=np.uint8)


@pytest.fixture
def learned(tmp_path: Path) -> tuple[Climb, Path]:
    """An estimator that has learned 60 images of `noise`, and the file it saved itself to."""
    model = Climb(capacity=60, backbone="micro", replay_batch=8, device="cpu", precision="float32").partial_fit(
        noise(60)
    )
    model.save(tmp_path / "learner.safetensors")
    return model, tmp_path / "learner.safetensors"


@pytest.fixture
def coloured(tmp_path: Path) -> Callable[..., Path]:
    """``coloured({"train": 9, "test": 10})``: noise with a tint, which is the class; some are hard to tell."""

    def write(parts: dict[str, int], classes: int = 3) -> Path:
        folder = tmp_path / "coloured"
        generator = np.random.default_rng(3)
        for part, count in parts.items():
            for label in range(classes):
                for place in range(count):
                    pixels = generator.integers(0, 150, (20, 16, 3))
                    pixels[:, :, label % 3] += generator.integers(10, 90)
                    file = folder / part / f"class{label}" / f"{place:03d}.png"
                    file.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(pixels.astype(np.uint8)).save(file)
        return folder

    return write
