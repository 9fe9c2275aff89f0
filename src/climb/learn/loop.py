"""The loop: images from a source, mini-batch after mini-batch, for as long as they come."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from threading import Event
from typing import Any

import torch

from climb.config import Execution, RunConfig
from climb.engine import Observation, resolve_device, resolve_engine, resolve_precision
from climb.engine.health import FEWEST, health
from climb.errors import ClimbError
from climb.learn.encoder import write_encoder
from climb.learn.health import Panel, Watchdog, choose_panel, drift, measure
from climb.learn.journal import LongJournal
from climb.learn.known import KnownImages, Unclaimed
from climb.learn.live_line import LiveLine
from climb.learn.resident import resident_bytes
from climb.learn.track import Tracker
from climb.learner import IMAGENET_MEAN, IMAGENET_STD, build_engine, chosen_network
from climb.runs import Interrupted, RunFolder
from climb.runs.interrupt import stop_on_signal
from climb.runs.versions import versions
from climb.sources import Item, PassedOver, Source
from climb.sources.prefetch import Arrival

PATIENCE = 0.25  # seconds after which a loop that waits for images looks at the clock and at signals
ENDING_SECONDS = 10.0  # without an arrival after which a source that was asked to end is not waited for any longer
IDLE_SECONDS = 5.0  # without an image after which those that wait for their mini-batch to fill are learned as they are
YOUTH = 10  # times as many images as the memory holds: until then features move, as they should
log = logging.getLogger("climb.learn")


class Diverged(ClimbError):
    """The loss is no number any more; such a network is never saved."""


class Learning:
    """A learner in its folder, as the last checkpoint left it.

    Args:
        config: what is learned with.
        execution: where, and how often the state is saved.
        folder: where all is kept; locked by the caller.
        journal_seconds: time between two journal lines.
    """

    def __init__(
        self,
        config: RunConfig,
        execution: Execution,
        folder: RunFolder,
        *,
        journal_seconds: float,
    ) -> None:
        self.config = config
        self.folder = folder
        self.device = resolve_device(execution.device)
        self.engine = build_engine(
            config.learner,
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            seed=config.seed,
            device=self.device,
            precision=resolve_precision(execution.precision, self.device),
            kind=resolve_engine(execution.engine, self.device),
        )
        self.journal = LongJournal(folder.journal.path)
        self.tally: Counter[str] = Counter()  # what became of the images in the memory, and of frames
        self.passed_over: Counter[str] = Counter()  # by reason
        self.seconds = 0.0  # of all sittings
        self._checkpoint_seconds = execution.checkpoint_seconds
        self._journal_seconds = journal_seconds
        self._tracker: Tracker | None = None
        self._watchdog = Watchdog()
        self._panel: Panel | None = None
        self._drift: float | None = None
        self._last: Observation | None = None
        self._dropped_before = 0  # frames, by earlier sittings
        self._broke: Exception | None = None  # why the source ended, if it should not have
        self._loss = torch.zeros((), device=self.device)  # sum since the last line; read when one is written
        self.known = self._resume()
        self._begin_line()
        self._saved = self._mark = time.monotonic()
        # Whether there is anything to save: what the checkpoint does not hold, or an encoder that was moved away.
        self._dirty = folder.checkpoint_path.exists() and not folder.model_path.exists()

    # -- learning ------------------------------------------------------------------------------------------------

    def follow(self, source: Source, tracker: Tracker | None = None) -> bool:
        """Learn what comes from a source, until it ends; the numbers of the journal go to the tracker, too.

        Gives whether a signal asked to stop when the source had ended already.

        Raises:
            Interrupted: a signal asked to stop; all that was learned is saved.
            Exception: what the source raised when it broke; all that was learned is saved.
        """
        self._tracker = tracker
        self._dropped_before = self.tally["dropped"]
        self._write_line("start", source=source.name, rereadable=source.rereadable, versions=versions(self.device))
        size, waiting = self.config.learner.stream_batch, list[Item]()
        arrived = quiet_since = time.monotonic()  # the latter: since when a source that was asked to end is silent
        waits = source.endless or not source.rereadable
        claim = self.known if waits else Unclaimed(self.known)
        ending, asked_to_end, ended = Event(), False, False
        with (
            stop_on_signal() as stop,
            LiveLine(f"learning from {source.name}") as line,
            closing(source.arrivals(patience=PATIENCE, claim=claim, ending=ending)) as arrivals,
        ):
            for arrival in self._until_it_breaks(arrivals):
                now = time.monotonic()
                if isinstance(arrival, Item):
                    waiting.append(arrival)
                    arrived = now
                elif isinstance(arrival, PassedOver):
                    self._pass_over(arrival)
                idle = waits and now - arrived > IDLE_SECONDS
                if len(waiting) == size or (waiting and idle):
                    self._learn(waiting)
                    waiting = []
                if stop.asked:
                    if source.rereadable:  # what is not learned is found again the next time
                        break
                    if arrival is not None or not asked_to_end:
                        quiet_since, asked_to_end = now, True
                        ending.set()
                    # What was taken is learned yet. A frame arrives as soon as a camera gives it; a path on standard
                    # input has a file behind it, which may lie on a slow drive.
                    if arrival is None and now - quiet_since >= (PATIENCE if source.live else ENDING_SECONDS):
                        break
                self._keep_books(source, line)
            else:
                ended = self._broke is None and not asked_to_end
            # Left to the next sitting where that is possible: it then has the mini-batches of one that never stopped.
            if waiting and (ended or not source.rereadable):
                self._learn(waiting)
            self._record(source, line)
            self._checkpoint()
        if self._broke is not None:
            raise self._broke
        if not ended:
            raise Interrupted
        # Nothing else tells a learner that is done from one that died.
        self._write_line("end", images=self.engine.budget.images)
        return stop.asked

    def _until_it_breaks(self, arrivals: Iterator[Arrival]) -> Iterator[Arrival]:
        try:
            yield from arrivals
        except Exception as error:  # raised again once what was learned is saved
            self._broke = error

    def _learn(self, items: list[Item]) -> None:
        observation = self.engine.observe(torch.stack([item.image for item in items]))
        for item in items:
            if item.identity is not None:
                self.known.learned(item.identity)
        self.tally.update(asdict(observation.report))
        self._loss += observation.objective
        self._last = observation
        self._dirty = True

    def _pass_over(self, passed: PassedOver) -> None:
        self.passed_over[passed.reason] += 1
        if passed.identity is not None and passed.for_good:
            self.known.learned(passed.identity)
        # Not for what is tried again: a camera that is away would have the whole state written at every attempt.
        self._dirty = self._dirty or passed.for_good

    # -- bookkeeping ---------------------------------------------------------------------------------------------

    def _keep_books(self, source: Source, line: LiveLine) -> None:
        now = time.monotonic()
        if now - self._line_began >= self._journal_seconds:
            self._record(source, line)
        if now - self._saved >= self._checkpoint_seconds:
            try:
                self._checkpoint()
            except Diverged:
                raise
            except (ClimbError, OSError) as error:  # room can be made on a full disk while the learner goes on
                self._saved = now
                log.error("no checkpoint: %s; trying again in %.0f s", error, self._checkpoint_seconds)

    def _record(self, source: Source, line: LiveLine) -> None:
        """One line of the journal about the time since the last one; none if nothing happened."""
        self.tally["dropped"] = self._dropped_before + source.dropped
        budget, memory, observation = self.engine.budget, self.engine.parts.memory, self._last
        batches, images = budget.batches - self._line_batches, budget.images - self._line_images
        if batches == 0 or observation is None:
            self._begin_line()
            return
        loss = float(self._loss) / batches
        self._check_finite()
        # A mini-batch of an image or two, before there is anything to replay, says nothing about the network.
        state = health(observation.embeddings) if len(observation.embeddings) >= FEWEST else None
        summary: dict[str, float] = getattr(memory, "summary", dict)()
        stored = 0 if memory is None else len(memory)
        moved = {name: self.tally[name] - self._line_tally[name] for name in ("novel", "evicted", "merged")}
        centroids = summary.get("stm_centroids", 0) + summary.get("ltm_centroids", 0)
        encoder = chosen_network(self.engine)[1].encoder
        values: dict[str, float | None] = {
            "images": budget.images,
            "images_per_second": images / max(time.monotonic() - self._line_began, 1e-9),
            "passed_over": sum(self.passed_over.values()),
            "dropped": self.tally["dropped"],
            "objective": loss,
            "alignment": float(observation.alignment),
            "embedding_spread": None if state is None else state.spread,
            "effective_rank": None if state is None else state.effective_rank,
            **({} if self._panel is None else measure(self.engine, encoder, self._panel)),
            "drift": self._drift,
            "novelty_rate": moved["novel"] / images,
            "stored": stored,
            "occupancy": None if memory is None else stored / memory.capacity,
            "memory_bytes": 0 if memory is None else memory.nbytes,
            **summary,
            "centroid_turnover": (moved["evicted"] + moved["merged"]) / centroids if centroids else None,
            **{name: self.tally[name] for name in ("novel", "evicted", "promoted", "merged", "pruned")},
            "resident_bytes": resident_bytes(),
        }
        self._write_line("train", **values)
        self._track({name: value for name, value in values.items() if value is not None and math.isfinite(value)})
        young = memory is not None and budget.images < YOUTH * memory.capacity
        for warning in self._watchdog.check(values, young=young):
            log.warning("after %d images: %s", budget.images, warning)
            self._write_line("warning", text=warning)
        rate = values["images_per_second"]
        said = f"{budget.images:,} images, {rate:,.0f} a second, loss {loss:.3f}, {stored} stored"
        line.say(said)
        log.info(said)
        self._begin_line()

    def _track(self, numbers: dict[str, float]) -> None:
        try:
            if self._tracker is not None:
                self._tracker.log(numbers, self.engine.budget.images)
        except Exception as error:  # somebody else's code, and somebody else's network: not worth a learner
            log.error("the tracker failed: %s", error)

    def _begin_line(self) -> None:
        self._line_began = time.monotonic()
        self._line_batches, self._line_images = self.engine.budget.batches, self.engine.budget.images
        self._line_tally = Counter(self.tally)
        self._loss.zero_()

    def _write_line(self, event: str, **values: Any) -> None:
        try:
            self.journal.write(self.engine.budget.batches, event, time=round(time.time(), 3), **values)
        except OSError as error:  # a full disk does not stop the learner
            log.error("no journal line: %s", error)

    def _check_finite(self) -> None:
        loss = 0.0 if self._last is None else float(self._last.objective)
        if not math.isfinite(loss):
            raise Diverged(
                f"the loss became {loss} after {self.engine.budget.images:,} images: training diverged. The last "
                "checkpoint is from before it; start again in another folder with a lower --lr"
            )

    # -- state ---------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        """Save all. The list of learned images first: the checkpoint says how much of it counts. The encoder before the
        checkpoint: killed in between, a learner that goes on writes it anew, and one that is done has it."""
        now = time.monotonic()
        if not self._dirty:
            self._saved = now
            return
        self._check_finite()
        engine = self.engine.state_dict()
        seconds = self.seconds + now - self._mark
        state = {
            "engine": engine,
            "learned": self.known.write(),
            "done": self.engine.budget.batches,
            "tally": dict(self.tally),
            "passed_over": dict(self.passed_over),
            "seconds": seconds,
        }
        write_encoder(self.folder.model_path, self.engine, self.config)
        self.folder.save_checkpoint(state)
        self.seconds, self._mark, self._saved, self._dirty = seconds, now, now, False
        self._look_at(engine["memory"])

    def _look_at(self, memory: dict[str, Any]) -> None:
        """Measure the drift of the stored images last looked at, and choose others. ``memory`` is its state."""
        encoder = chosen_network(self.engine)[1].encoder
        if self._panel is not None:
            self._drift = drift(self.engine, encoder, self._panel)
        if "images" in memory:
            self._panel = choose_panel(self.engine, encoder, memory["images"])

    def _resume(self) -> KnownImages:
        path = self.folder.path / "learned.u64"
        state = self.folder.load_checkpoint()
        if state is None:
            self.journal.cut(-1)
            return KnownImages(path, 0)
        self.journal.cut(state["done"])
        self.engine.load_state_dict(state["engine"])
        self.tally, self.passed_over = Counter(state["tally"]), Counter(state["passed_over"])
        self.seconds = state["seconds"]
        self._look_at(state["engine"]["memory"])
        log.info("continuing after %d images", self.engine.budget.images)
        return KnownImages(path, state["learned"])
