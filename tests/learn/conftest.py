from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

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
