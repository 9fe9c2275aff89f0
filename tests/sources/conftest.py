from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from PIL import Image

from climb.sources import Options, watch
from climb.sources.folder import read_folder
from climb.sources.item import Item, PassedOver
from climb.sources.prefetch import load
from climb.sources.source import Once

Draw = Callable[..., Path]


class Clock(Event):
    """A clock that advances only in `wait`, and the event that stops a watcher.

    On a busy machine a thread may stand still for a while, which looks like a writer that is done. Here none does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.began = time.time()
        self.now = 0.0
        self._plans: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.began + self.now

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.now += timeout
        for plan in [plan for plan in self._plans if plan[0] <= self.now]:
            self._plans.remove(plan)
            plan[1]()
        return self.is_set()

    def at(self, moment: float, happens: Callable[[], object]) -> None:
        """Call a function during the first wait at or after ``moment``."""
        self._plans.append((moment, happens))

    def arrivals(self, root: Path, *, until: float) -> list[tuple[float, Item | PassedOver]]:
        """Arrivals from a watched folder until then, with their times. Images are loaded as they are found."""
        self.at(until, self.set)
        found = []
        for pending in read_folder(str(root), Options(image_size=16, watch=True))(Once(), self):
            arrival = load(pending)
            if arrival is not None:
                found.append((self.now, arrival))
        return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of `climb.sources.watch`, in place of real time."""
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    return clock


@pytest.fixture
def draw() -> Draw:
    """``draw(file, seed)`` writes a picture of coloured noise, with its folders."""

    def write(file: Path, seed: int = 0, size: tuple[int, int] = (16, 16)) -> Path:
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(file)
        return file

    return write
