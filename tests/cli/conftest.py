from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from climb.cli import run_command

sys.path.insert(0, str(Path(__file__).parent))  # `listing`: what `climb methods` prints, read back


@pytest.fixture(autouse=True)
def own_places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache and a working folder of the test's own, no other data to find, and no network."""
    monkeypatch.setenv("CLIMB_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.delenv("CLIMB_DATA", raising=False)
    monkeypatch.chdir(tmp_path_factory.mktemp("work"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # the discard port: nobody answers
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")


@dataclass(frozen=True, kw_only=True)
class Said:
    """How a command ended and what it said."""

    code: int
    out: str
    err: str


@pytest.fixture
def climb(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """``climb("run", "demo", "--seed", 3)`` in this process."""

    def command(*arguments: object) -> Said:
        capsys.readouterr()
        try:
            code = run_command([str(argument) for argument in arguments])
        except SystemExit as left:  # how the argument parser leaves
            code = int(left.code or 0)
        said = capsys.readouterr()
        return Said(code=code, out=said.out, err=said.err)

    return command


@pytest.fixture
def picture() -> Callable[..., Path]:
    """``picture(file, seed)`` writes an image of coloured noise, with its folders."""

    def write(file: Path, seed: int = 0, side: int = 16) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file)
        return file

    return write


@pytest.fixture
def tree(tmp_path: Path, picture: Callable[..., Path]) -> Path:
    """A good folder of images: 4 classes, 12 training and 3 test images each."""
    for label, name in enumerate(["ant", "bee", "cat", "dog"]):
        for i in range(12):
            picture(tmp_path / f"tree/train/{name}/{i}.png", 100 * label + i)
        for i in range(3):
            picture(tmp_path / f"tree/test/{name}/{i}.png", 100 * label + 50 + i)
    return tmp_path / "tree"


SMALL = [
    "--tasks", "2", "--backbone", "micro", "--image-size", "16",
    "--capacity", "60", "--replay-batch", "8", "--device", "cpu",
]  # fmt: skip


@pytest.fixture
def small() -> list[str]:
    """Options that make a run of ``tree`` take a second."""
    return SMALL
