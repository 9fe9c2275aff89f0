"""What ``climb learn`` says first: the network, its weights, the device, the number of files, and the expected time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from climb.images.find import FolderScanner
from climb.nets.weights import PUBLISHED, RANDOM
from climb.session.feeds import Batch, LiveFeed
from climb.session.observer import Observer
from climb.settings.config import LearnerConfig

if TYPE_CHECKING:
    from climb.engine import Observation
    from climb.session.session import Session

WARM_UP, TIMED = 2, 4
"""Mini-batches with replay before the clock starts, and those that are timed."""
LISTING_SECONDS = 2.0
"""Longest time for counting files."""


class FirstLine(Observer):
    """Describes a learner in one line, once a few mini-batches have shown how fast it is.

    Args:
        images: the source, as the caller gave it.
        say: takes the line.
    """

    def __init__(self, images: Any, *, say: Callable[[str], object]) -> None:
        self._images, self._say = images, say
        self._files: int | None = None
        self._times: list[float] | None = []

    def start(self, session: Session) -> None:
        """Count the files."""
        if not (isinstance(session.feed, LiveFeed) and session.feed.source.endless):  # else more will come
            self._files = known_files(self._images)

    def after_batch(self, session: Session, batch: Batch, observation: Observation) -> None:
        """Note the time; say the line after enough mini-batches with replay."""
        if self._times is None:
            return
        memory, learner = session.engine.parts.memory, session.config.learner
        if memory is None or len(memory) >= learner.replay_batch:
            self._times.append(time.monotonic())
        if len(self._times) > WARM_UP + TIMED:
            seconds = (self._times[-1] - self._times[WARM_UP]) / TIMED
            self._finish(session, learner.stream_batch / seconds)

    def finish(self, session: Session) -> None:
        """Say the line of a short sitting, without a rate."""
        if self._times is not None:
            self._finish(session, None)

    def _finish(self, session: Session, rate: float | None) -> None:
        self._times = None
        left = None if self._files is None else max(0, self._files - session.engine.budget.images)
        encoder = session.engine.parts.network.encoder
        parameters = sum(weights.numel() for weights in encoder.parameters())
        files = None if self._files is None else f"{self._files:,} files"
        line = [describe(session.config.learner, parameters, str(session.device)), files, expected(left, rate)]
        self._say("; ".join(part for part in line if part))


def describe(learner: LearnerConfig, parameters: int, device: str) -> str:
    """The network in words.

    >>> describe(LearnerConfig(backbone="micro"), 98_000, "cpu")
    'micro from random weights, 0.1 million parameters, images of 32 px, on cpu'
    """
    weights = {RANDOM: "random weights", PUBLISHED: "pretrained weights"}.get(learner.weights, learner.weights)
    size = f"{parameters / 1e6:.1f} million parameters, images of {learner.image_size} px"
    return f"{learner.backbone} from {weights}, {size}, on {device}"


def expected(images: int | None, rate: float | None) -> str:
    """The expected time for so many images, at a rate in images per second.

    >>> expected(9991, 12.0), expected(30, 12.0), expected(None, 12.0), expected(9991, None)
    ('12.0 images a second: about 14 min', '12.0 images a second: about 2 s', '12.0 images a second', '')
    """
    if rate is None:
        return ""
    text = f"{rate:,.1f} images a second"
    if images is None:
        return text
    seconds = images / rate
    amount = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else ""
    return f"{text}: about {amount or f'{seconds / 3600:.1f} h'}"


def known_files(images: Any) -> int | None:
    """The number of images of a source, if counting takes a moment only: files below a folder, items of a list."""
    if isinstance(images, str | Path):
        if not Path(images).expanduser().is_dir():
            return None
        until, count = time.monotonic() + LISTING_SECONDS, 0
        for _ in FolderScanner(str(Path(images).expanduser())).scan(full=True):
            count += 1
            if time.monotonic() > until:
                return None
        return count
    return len(images) if hasattr(images, "__len__") else None
