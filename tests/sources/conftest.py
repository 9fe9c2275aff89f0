from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

Draw = Callable[..., Path]


@pytest.fixture
def draw() -> Draw:
    """``draw(file, seed)`` writes a picture of coloured noise, with its folders."""

    def write(file: Path, seed: int = 0, size: tuple[int, int] = (16, 16)) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file)
        return file

    return write
