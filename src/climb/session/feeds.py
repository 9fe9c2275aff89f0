"""Feeds: where the mini-batches of a session come from, a dataset stream or a live source."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import torch

from climb.datasets import Dataset
from climb.engine import IidChunks
from climb.methods import find_method
from climb.nets import IMAGENET_MEAN, IMAGENET_STD
from climb.session.seen_images import SeenImages
from climb.settings.config import LearnerConfig
from climb.sources import Item, PassedOver, Source
from climb.sources.prefetch import Arrival, Prefetch
from climb.streams import Batch as Indices
from climb.streams import Stream

AHEAD = 4  # mini-batches of a dataset read ahead: a few milliseconds of disk for each
PATIENCE = 0.25  # seconds without an arrival after which a live feed returns to the loop
ENDING_SECONDS = 10.0  # without an arrival after which a source that was asked to end is abandoned
IDLE_SECONDS = 5.0  # without an image after which a mini-batch that is not full is learned


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """One mini-batch."""

    images: torch.Tensor
    """uint8 (n, 3, H, W)."""
    ends_segment: int | None = None
    """The segment (task) that this mini-batch completes, if it completes one."""
    identities: tuple[int, ...] = ()
    """64-bit identities of images of a live source that can be found again."""
    paths: tuple[str, ...] = ()
    """Where the images of a live source came from."""


class Feed:
    """Yields mini-batches until it ends or `wind_down` is called."""

    endless: bool
    """Whether a session may last for weeks: its journal is bounded in size and has times, and a full disk does not
    stop it."""
    total: int | None = None
    """Number of mini-batches, if known."""
    mean: tuple[float, float, float] = IMAGENET_MEAN
    """Mean of the channels of all images, on the 0..1 scale."""
    std: tuple[float, float, float] = IMAGENET_STD
    """Standard deviation of the channels."""
    label: str
    """Begins the live line."""
    ended = False
    """Whether the stream ended by itself."""
    error: Exception | None = None
    """The error that ended a live source."""
    unsaved = False
    """Whether the feed's own state has changed since the last checkpoint."""
    _winding_down = False

    def batches(self, done: int) -> Generator[Batch | None]:
        """Mini-batches after the first ``done``; None if the loop should look at the clock and at signals."""
        raise NotImplementedError

    def wind_down(self) -> None:
        """End soon. Images that cannot be found again are still yielded."""
        self._winding_down = True

    def learned(self, batch: Batch) -> None:
        """Note that a mini-batch has been learned."""

    def description(self) -> dict[str, Any]:
        """Fields of the journal's "start" line."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The feed's part of a checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint."""


class DatasetFeed(Feed):
    """The mini-batches of a dataset stream.

    Args:
        data: the dataset.
        stream: the order of its training images.
        learner: method, and sizes of the mini-batches.
        device: where the mini-batches are needed.
    """

    endless = False

    def __init__(self, data: Dataset, stream: Stream, learner: LearnerConfig, device: torch.device) -> None:
        self.label = f"{learner.method} on {data.name}"
        self.total: int = stream.number_of_batches(learner.stream_batch)
        self.mean, self.std = data.mean, data.std
        self._images, self._stream, self._learner, self._device = data.train.images, stream, learner, device

    def batches(self, done: int) -> Generator[Batch | None]:
        """Mini-batches after the first ``done``."""
        learner = self._learner
        indices = self._stream.batches(learner.stream_batch, start=done)
        if find_method(learner.method).uses("batch", IidChunks):  # takes all images of its passes at once
            size = learner.passes * (learner.stream_batch + learner.replay_batch)
            indices = self._stream.shuffled(size, self.total, start=done)
        for batch, images in with_images(indices, self._images, self._device):
            yield Batch(images=images, ends_segment=batch.ends_segment)
            if self._winding_down:
                return
        self.ended = True


def with_images(
    batches: Iterator[Indices], images: torch.Tensor, device: torch.device
) -> Iterator[tuple[Indices, torch.Tensor]]:
    """Each mini-batch with its uint8 images (n, 3, H, W) on ``device``, in order.

    Images on the device are indexed there. Others may be on disk, mapped into memory: a thread reads them ahead.
    """
    if images.device.type == device.type:
        yield from ((batch, images[batch.indices.to(images.device, non_blocking=True)]) for batch in batches)
        return

    def read(batch: Indices) -> tuple[Indices, torch.Tensor]:
        rows = images[batch.indices]
        return batch, rows.pin_memory() if device.type == "cuda" else rows  # copies from pinned memory do not block

    loads = (partial(read, batch) for batch in batches)
    with closing(Prefetch(lambda _: loads, workers=1, depth=AHEAD)) as prefetch:
        for result in prefetch.results():
            if result is not None:
                yield result[0], result[1].to(device, non_blocking=True)


class LiveFeed(Feed):
    """The mini-batches of a live source. Every file is learned once, over all sittings.

    Args:
        source: finds and loads the images.
        size: images per mini-batch.
        path: the file of the images learned.
    """

    endless = True

    def __init__(self, source: Source, *, size: int, path: Path) -> None:
        self.label = f"learning from {source.name}"
        self.source = source
        self.passed_over: Counter[str] = Counter()
        """Files that were not used, by reason."""
        self._size, self._path = size, path
        self._waits = source.endless or not source.rereadable
        self._seen = self._seen_images(0)

    def batches(self, done: int) -> Generator[Batch | None]:
        """Mini-batches as they fill, and None after every arrival that fills none."""
        source, waiting = self.source, list[Item]()
        ending, asked_to_end = Event(), False  # the source sets the event itself when it is closed
        arrived = quiet_since = time.monotonic()
        with closing(source.arrivals(patience=PATIENCE, seen=self._seen, ending=ending)) as arrivals:
            for arrival in self._until_error(arrivals):
                now = time.monotonic()
                if isinstance(arrival, Item):
                    waiting.append(arrival)
                    arrived = now
                elif isinstance(arrival, PassedOver):
                    self._pass_over(arrival)
                idle = self._waits and now - arrived > IDLE_SECONDS
                if len(waiting) == self._size or (waiting and idle):
                    yield _batch(waiting)
                    waiting = []
                else:
                    yield None
                if not self._winding_down:
                    continue
                if source.rereadable:  # the next sitting finds the other images again
                    break
                if arrival is not None or not asked_to_end:
                    quiet_since, asked_to_end = now, True
                    ending.set()
                # Frames of a camera arrive at once. A path on standard input names a file, perhaps on a slow drive.
                if arrival is None and now - quiet_since >= (PATIENCE if source.live else ENDING_SECONDS):
                    break
            else:
                self.ended = self.error is None and not asked_to_end
        # Left to the next sitting if possible: a learner that is stopped then sees the same mini-batches as one that
        # is not.
        if waiting and (self.ended or not source.rereadable):
            yield _batch(waiting)

    def learned(self, batch: Batch) -> None:
        """Note the identities of images that have been learned."""
        for identity in batch.identities:
            self._seen.learned(identity)

    def description(self) -> dict[str, Any]:
        """Name of the source, and whether it can be read again."""
        return {"source": self.source.name, "rereadable": self.source.rereadable}

    def state_dict(self) -> dict[str, Any]:
        """The counts. Writes the identities to their file first: the checkpoint says how many of them are valid."""
        learned = self._seen.write()
        return {"learned": learned, "learned_crc32": self._seen.digest, "passed_over": dict(self.passed_over)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after the images that the checkpoint has learned."""
        self._seen = self._seen_images(state["learned"], state.get("learned_crc32"))
        self.passed_over = Counter({reason: int(count) for reason, count in state["passed_over"].items()})

    def _seen_images(self, learned: int, digest: int | None = None) -> SeenImages:
        claims = self._waits  # a source that ends names each image once
        return SeenImages(self._path, learned, digest=digest, claims=claims)

    def _until_error(self, arrivals: Iterator[Arrival]) -> Iterator[Arrival]:
        try:
            yield from arrivals
        except Exception as error:  # raised again once everything learned is saved
            self.error = error

    def _pass_over(self, passed: PassedOver) -> None:
        self.passed_over[passed.reason] += 1
        if passed.identity is not None and passed.for_good:
            self._seen.learned(passed.identity)
        # Other reasons may recur: a camera that is offline must not cause a checkpoint at every attempt.
        self.unsaved = self.unsaved or passed.for_good


def _batch(items: list[Item]) -> Batch:
    return Batch(
        images=torch.stack([item.image for item in items]),
        identities=tuple(item.identity for item in items if item.identity is not None),
        paths=tuple(item.where for item in items),
    )
