"""The "train" lines of the journal: those of a run by mini-batches, those of a learner by time."""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from climb.engine import Observation
from climb.engine.health import FEWEST, health
from climb.memory.snapshot import saved_images
from climb.methods.build import chosen_network
from climb.session.feeds import Batch, LiveFeed
from climb.session.health import Panel, choose_panel, drift, measure
from climb.session.observer import Observer
from climb.session.trackers import Tracker, open_tracker
from climb.settings.config import TrackerName

if TYPE_CHECKING:
    from climb.session.session import Session

JOURNAL_EVERY = 10  # mini-batches between two lines of a run; reading a loss waits for the device
YOUTH = 10  # a network is young until it has learned so many times the capacity of its memory
COUNTS = ("novel", "evicted", "promoted", "merged", "pruned")
log = logging.getLogger("climb.session")

MEASURES = {
    "images": "Images learned so far.",
    "images_per_second": "Rate since the last line, waiting included.",
    "passed_over": "Images that were damaged, gigantic or unreadable, so far.",
    "dropped": "Frames of a live source that came faster than they could be learned, so far.",
    "objective": "Loss of the objective, mean since the last line.",
    "alignment": "Loss of the alignment, in the last mini-batch.",
    "embedding_spread": "Spread of the embeddings: 1 for random directions, 0 for one point.",
    "effective_rank": "Dimensions that the embeddings really use.",
    "feature_spread": "Spread of features of stored images, relative to that of the images: 0 for one point.",
    "feature_rank": "Dimensions that the encoder's features of stored images really use.",
    "view_alignment": "Squared distance of two views of a stored image, unit features: low is good.",
    "uniformity": "Log of the mean Gaussian potential of unit features of stored images: low is good, 0 is one point.",
    "drift": "Way that features of stored images moved between the last two checkpoints; 1 is that to another image.",
    "novelty_rate": "Share of images since the last line that opened a place of their own in the memory.",
    "threshold": "Cosine distance from which an image is novel.",
    "stored": "Images in the memory.",
    "occupancy": "Stored images, as a share of the most that may be stored.",
    "memory_bytes": "Bytes reserved for the memory.",
    "stm_images": "Images in the short-term memory.",
    "ltm_images": "Images in the long-term memory.",
    "stm_centroids": "Centroids in the short-term memory.",
    "ltm_centroids": "Centroids in the long-term memory.",
    "centroid_turnover": "Centroids evicted or merged since the last line, as a share of all.",
    "novel": "Images that opened a place of their own, so far.",
    "evicted": "Centroids removed to make room, so far.",
    "promoted": "Centroids that became long-term, so far.",
    "merged": "Centroids absorbed by another, so far.",
    "pruned": "Times the memory was pruned at its bound, so far.",
    "resident_bytes": "Memory of the process.",
    "novelty": "Mean novelty score of the last 1,000 images; about 0.5 while they are like those before.",
    "novel_images": "Images whose novelty score was reported, so far.",
    "changes": "Changes of the stream detected so far.",
}
"""Name and meaning of every number in a learner's "train" lines, for trackers and the metrics endpoint."""


class TrainLines(Observer):
    """Writes a line about the last mini-batch: every few mini-batches, and at the end of each segment."""

    def after_batch(self, session: Session, batch: Batch, observation: Observation) -> None:
        """Write a line if one is due."""
        if (session.done - 1) % JOURNAL_EVERY != 0 and batch.ends_segment is None:
            return
        values = train_values(session, observation)
        session.write("train", **values)
        if len(observation.embeddings) >= FEWEST:
            session.warn(*session.watchdog.check(values))
        stores = ""
        if {"stm_images", "ltm_images"} <= values.keys():  # not for a memory with a summary of its own
            stores = f" ({values['stm_images']} short-term, {values['ltm_images']} long-term)"
        session.line.note(f"loss {values['objective']:.3f}, {values['stored']} stored{stores}")


def train_values(session: Session, observation: Observation) -> dict[str, Any]:
    """What the lines of runs and of learners share: losses, spread of the embeddings, content of the memory."""
    session.check_finite()
    memory = session.engine.parts.memory
    state = health(observation.embeddings)
    return {
        "embedding_spread": state.spread,
        "effective_rank": state.effective_rank,
        "objective": float(observation.objective),
        "alignment": float(observation.alignment),
        "stored": 0 if memory is None else len(memory),
        **getattr(memory, "summary", dict)(),
        **{name: session.tally[name] for name in COUNTS},
    }


class LearnerLines(Observer):
    """Writes a line about all mini-batches since the last line, every few seconds.

    Args:
        feed: counts files passed over and frames dropped.
        every_seconds: time between two lines.
        tracker: name of the tracker that gets the numbers, too.
    """

    def __init__(self, feed: LiveFeed, *, every_seconds: float, tracker: TrackerName | None) -> None:
        self._feed = feed
        self._every_seconds = every_seconds
        self._tracker_name = tracker
        self._tracker: Tracker | None = None
        self._panel: Panel | None = None
        self._drift: float | None = None
        self._last: Observation | None = None

    def start(self, session: Session) -> None:
        """Open the tracker, choose the stored images to measure, and begin the first line."""
        if self._tracker_name is not None:
            images = session.engine.budget.images
            self._tracker = open_tracker(self._tracker_name, session.folder.path, session.config, images)
        self._dropped_before = session.tally["dropped"]  # in earlier sittings
        self._loss = torch.zeros((), device=session.device)  # sum since the last line: reading it waits for the device
        memory = session.engine.parts.memory
        if session.done and memory is not None:
            self.after_checkpoint(session, {"memory": memory.state_dict()})  # the one that was loaded
        self._begin(session)

    def after_batch(self, session: Session, batch: Batch, observation: Observation) -> None:
        """Add up the loss, and write a line if one is due."""
        self._loss += observation.objective
        self._last = observation
        self.idle(session)

    def idle(self, session: Session) -> None:
        """Write a line if one is due."""
        if time.monotonic() - self._began >= self._every_seconds:
            self._write(session)

    def at_stop(self, session: Session) -> None:
        """Write the last line."""
        self._write(session)

    def after_checkpoint(self, session: Session, state: dict[str, Any]) -> None:
        """Measure the drift since the last checkpoint, and choose other images from the memory in this one."""
        encoder = chosen_network(session.engine)[1].encoder
        if self._panel is not None:
            self._drift = drift(session.engine, encoder, self._panel)
        if (images := saved_images(state["memory"])) is not None:
            self._panel = choose_panel(session.engine, encoder, images)

    def close(self, session: Session) -> None:
        """Close the tracker."""
        self._track("close")

    def _write(self, session: Session) -> None:
        """One line; none if nothing was learned since the last."""
        session.tally["dropped"] = self._dropped_before + self._feed.source.dropped
        budget, memory = session.engine.budget, session.engine.parts.memory
        batches, images = session.done - self._batches, budget.images - self._images
        if batches == 0 or self._last is None:
            self._begin(session)
            return
        values = train_values(session, self._last)
        if len(self._last.embeddings) < FEWEST:  # too few to tell
            values |= {"embedding_spread": None, "effective_rank": None}
        moved = {name: session.tally[name] - self._tally[name] for name in ("novel", "evicted", "merged")}
        centroids = values.get("stm_centroids", 0) + values.get("ltm_centroids", 0)
        encoder = chosen_network(session.engine)[1].encoder
        values |= {
            "images": budget.images,
            "images_per_second": images / max(time.monotonic() - self._began, 1e-9),
            "passed_over": sum(self._feed.passed_over.values()),
            "dropped": session.tally["dropped"],
            "objective": float(self._loss) / batches,
            **({} if self._panel is None else measure(session.engine, encoder, self._panel)),
            "drift": self._drift,
            "novelty_rate": moved["novel"] / images,
            "occupancy": None if memory is None else values["stored"] / memory.capacity,
            "memory_bytes": 0 if memory is None else memory.nbytes,
            "centroid_turnover": (moved["evicted"] + moved["merged"]) / centroids if centroids else None,
            "resident_bytes": resident_bytes(),
            **session.measured,
        }
        session.write("train", **values)
        numbers = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
        self._track("log", numbers, budget.images)
        young = memory is not None and budget.images < YOUTH * memory.capacity
        session.warn(*session.watchdog.check(values, young=young))
        rate = f"{budget.images:,} images, {values['images_per_second']:,.0f} a second"
        text = f"{rate}, loss {values['objective']:.3f}, {values['stored']} stored"
        session.line.note(text)
        log.info(text)
        self._begin(session)

    def _begin(self, session: Session) -> None:
        self._began = time.monotonic()
        self._batches, self._images = session.done, session.engine.budget.images
        self._tally = Counter(session.tally)
        self._loss.zero_()

    def _track(self, method: str, *arguments: Any) -> None:
        try:
            if self._tracker is not None:
                getattr(self._tracker, method)(*arguments)
        except Exception as error:  # tracker errors must not stop training
            log.error("the tracker failed: %s", error)


def resident_bytes() -> int | None:
    """Bytes of the process in memory; None if the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as handle:
            return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
