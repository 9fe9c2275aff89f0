from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache for the test, and no other folder with data."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("CLIMB_CACHE", str(folder))
    monkeypatch.delenv("CLIMB_DATA", raising=False)
    return folder


@pytest.fixture
def paint() -> Callable[..., Path]:
    """``paint(file, level=0, size=(10, 8))`` writes a plain grey image, with its folders."""

    def write(file: Path, level: int = 0, size: tuple[int, int] = (10, 8)) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (level, level, level)).save(file)
        return file

    return write
