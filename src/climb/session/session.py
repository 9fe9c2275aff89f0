"""The training loop: a feed yields mini-batches, the engine learns them, observers react."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch

from climb.engine import Choices, Engine, choose, resolve_device
from climb.errors import ClimbError
from climb.methods import find_method
from climb.methods.build import build_engine
from climb.nets import move_weights, weights_of
from climb.parallel import SINGLE, Group, own_device
from climb.precision import threads
from climb.runs import Journal, RunFolder
from climb.runs.journal import MOST_BYTES
from climb.runs.provenance import versions
from climb.session.feeds import Batch, Feed
from climb.session.health import Watchdog
from climb.session.observer import Observer, ObserverError, call_plugin
from climb.session.progress import LiveLine, Timer
from climb.session.signals import Finished, Interrupted, stop_on_signal
from climb.settings.config import Execution, RunConfig
from climb.state import restoring

log = logging.getLogger("climb.session")


class Diverged(ClimbError):
    """The loss is not finite. Such a network is never saved."""


@dataclass(eq=False)
class Session:
    """A run or a learner in its folder, from the last checkpoint to the end of its feed."""

    config: RunConfig
    """Settings of the learner and of its data."""
    execution: Execution
    """Device, and time between two checkpoints."""
    folder: RunFolder
    """Holds all files; locked by the caller."""
    feed: Feed
    """Yields the mini-batches."""
    observers: Sequence[Observer]
    """React, in this order, in the first process."""
    plugins: Sequence[Observer] = ()
    """Observers of the caller; react after the others."""
    group: Group = SINGLE
    """The processes that train together."""

    def __post_init__(self) -> None:
        self.device = resolve_device(own_device(self.execution.device))
        start = weights_of(self.config.learner)
        if start is not None:  # the network's own statistics go before those of the images
            self.feed.mean, self.feed.std = start.mean or self.feed.mean, start.std or self.feed.std
        self.choices = self._choose()
        self.engine = self._build_engine(self.group)
        self.line = LiveLine(self.feed.label, total=self.feed.total, shown=self.group.first)
        self.observers = [self.line, *self.observers] if self.group.first else []
        self.plugins = self.plugins if self.group.first else []
        journal = self.folder.journal
        self.journal = Journal(journal.path, most_bytes=MOST_BYTES) if self.feed.endless else journal
        self.watchdog = Watchdog(repeat=self.feed.endless)
        self.timer = Timer()
        self.done = 0  # mini-batches
        self.pending: int | None = None  # a segment that has ended and is not evaluated yet
        self.measured: dict[str, float] = {}  # by observers, for the next journal line
        self.tally: Counter[str] = Counter()  # outcomes of stream images in the memory
        self.unsaved = False  # whether something changed since the last checkpoint
        self.complete = False  # whether the stream has ended
        self.result: Any = None
        self._loss = torch.zeros(())  # of the last mini-batch
        self._saved = time.monotonic()

    # -- the loop --------------------------------------------------------------------------------------------------

    def run(self) -> Any:
        """Learn until the feed ends or a signal arrives; the result that an observer set.

        Raises:
            Interrupted: a signal arrived; the state is saved, and the same call continues.
            Finished: a signal arrived when everything had been learned.
            Exception: the error that ended a live source; all images before it are learned and saved.
        """
        with stop_on_signal() as stop, ExitStack() as on_exit, threads(self.choices.threads):
            on_exit.callback(self._notify, "close")
            self._resume()
            self._notify("start")
            self._end_segment()
            self.timer.resume()
            with closing(self.feed.batches(self.done)) as batches:
                for batch in batches:
                    if batch is None:
                        self._notify("idle")
                    else:
                        self._learn(batch)
                    due = time.monotonic() - self._saved >= self.execution.checkpoint_seconds
                    asked, due = self._decided(stop.asked, due or stop.save_asked)
                    if asked:
                        self.feed.wind_down()
                    else:
                        self._end_segment()
                    if due:
                        stop.save_asked = False
                        self._checkpoint()
            self._notify("at_stop")
            self._checkpoint(last=True)
            self._finish()
        if stop.asked:
            raise Finished(self.result)
        return self.result

    def _learn(self, batch: Batch) -> None:
        self._notify("before_batch", batch)
        observation = self.engine.observe(batch.images)
        self.feed.learned(batch)
        self.done += 1
        self.pending, self.unsaved = batch.ends_segment, True
        self.tally.update(asdict(observation.report))
        self._loss = observation.objective
        self._notify("after_batch", batch, observation)
        if self.pending is not None:
            self.engine.on_boundary()

    def _end_segment(self) -> None:
        """Have observers evaluate the segment that has ended, if one has. The other processes wait."""
        if self.pending is None:
            return
        with self._pausing():
            self._notify("at_boundary", self.pending)
            self.group.all_gather(0)  # on the hosts: devices would spin
        self.pending, self.unsaved = None, True

    def _decided(self, asked: bool, due: bool) -> tuple[bool, bool]:
        """Whether to stop, if any process was asked to, and whether to save, by the clock of the first process."""
        table = self.group.all_gather(asked, due)
        return any(row[0] for row in table), bool(table[0][1])

    def _finish(self) -> None:
        self.complete = self.feed.ended
        if self.complete and self.group.size > 1:
            state = self.engine.state_dict()
            if self.group.first:  # finishes with the state of all processes, in an engine of its own
                self.engine = self._build_engine(SINGLE)
                self.engine.load_state_dict(state)
        self._notify("finish")
        self.result = self.group.from_first(self.result)
        if self.feed.error is not None:
            raise self.feed.error
        if not self.complete:
            raise Interrupted

    # -- what observers use ------------------------------------------------------------------------------------------

    def write(self, event: str, **values: Any) -> None:
        """Append a line to the journal. A full disk does not stop an endless session."""
        if self.feed.endless:
            values = {"time": round(time.time(), 3), **values}
        try:
            self.journal.write(self.done, event, **values)
        except OSError as error:
            if not self.feed.endless:
                raise
            log.error("no journal line: %s", error)

    def warn(self, *texts: str) -> None:
        """Log warnings; the journal of an endless session keeps them."""
        for text in texts:
            log.warning("at mini-batch %d: %s", self.done, text)
            if self.feed.endless:
                self.write("warning", text=text)

    def check_finite(self) -> None:
        """Raise if the last loss is not finite."""
        loss = float(self._loss)
        if not math.isfinite(loss) and self.engine.budget.steps > 0:  # PCMC has no loss before its first sleep
            raise Diverged(
                f"the loss became {loss} at mini-batch {self.done}: training diverged; lower --lr, in another folder"
            )

    # -- state -------------------------------------------------------------------------------------------------------

    def _checkpoint(self, *, last: bool = False) -> None:
        """Save the state if it has changed."""
        with self._pausing():
            self.timer.update()
            try:
                if self.unsaved or self.feed.unsaved:
                    self._save()
            except (ClimbError, OSError) as error:
                if isinstance(error, Diverged | ObserverError) or last or not self.feed.endless:
                    raise
                # Disk space may be freed while an endless session goes on.
                log.error("no checkpoint: %s; trying again in %.0f s", error, self.execution.checkpoint_seconds)
            self._saved = time.monotonic()

    def _save(self) -> None:
        self.check_finite()
        engine = self.engine.state_dict()  # in every process: each holds a part of the memory
        if self.group.first:
            state: dict[str, Any] = {
                "engine": engine,
                "done": self.done,
                "pending": self.pending,
                "tally": dict(self.tally),
                "seconds": self.timer.seconds["total"] if self.feed.endless else dict(self.timer.seconds),
                **self.feed.state_dict(),
            }
            self._notify("at_checkpoint", state)
            for observer in self.observers:
                state.update(observer.state_dict())
            states = {observer.name: call_plugin(observer, "state_dict") for observer in self.plugins}
            state["observers"] = {name: own for name, own in states.items() if own}
            self.folder.save_checkpoint(state)
        self.unsaved = self.feed.unsaved = False
        self._notify("after_checkpoint", engine)

    def _resume(self) -> None:
        """Load the newest checkpoint that is whole, and cut the journal to it."""
        if self.group.first and self.folder.choices() != self._stored_choices:
            raise ClimbError(f"another process has begun {self.folder.path} meanwhile; give the same command again")
        state: dict[str, Any] | None = self.folder.load_checkpoint() if self.group.first else None
        state = self.group.from_first(state)
        if state is not None:
            with restoring(self.folder.checkpoints.loaded):
                self.engine.load_state_dict(state["engine"])
                self.done, self.pending = _count(state["done"]), state.get("pending")
                self.tally = Counter({name: _count(number) for name, number in state["tally"].items()})
                self.timer.load(state["seconds"])
                self.feed.load_state_dict(state)
                for observer in self.observers:
                    observer.load_state_dict(state)
            for observer in self.plugins:
                if observer.name in state.get("observers", {}):  # not if it is new in this sitting
                    call_plugin(observer, "load_state_dict", state["observers"][observer.name])
        if self.group.first:
            if self.device.type == "cpu":
                self.folder.keep_choices(asdict(self.choices))
            self.journal.cut(-1 if state is None else self.done, task=self.pending)
            self.write(
                "start",
                **self.feed.description(),
                engine=self.engine.kind,
                precision=self.engine.precision,
                layout=self.choices.layout,
                threads=self.choices.threads,
                processes=self.group.size,
                versions=versions(self.device),
            )
            if state is not None:
                if lost := self.folder.lost(state):
                    self.warn(lost)
                    self.unsaved = True
                log.info("continuing after mini-batch %d, %d images", self.done, self.engine.budget.images)

    def _choose(self) -> Choices:
        """How steps are executed: as the folder says, else chosen now."""
        execution, learner, batches = self.execution, self.config.learner, self.feed.total
        choices: Any = None
        if self.group.first:
            self._stored_choices = self.folder.choices()
            choices = choose(
                execution.precision,
                execution.engine,
                device=self.device,
                group=self.group,
                stored=self._stored_choices,
                steps=0 if find_method(learner.method).custom_engine else learner.passes * (batches or 0),
                make=lambda tried: self._build_engine(SINGLE, tried),
            )
        chosen: Choices = self.group.from_first(choices)
        return chosen

    def _build_engine(self, group: Group, choices: Choices | None = None) -> Engine:
        """An engine at its first step, by default with the session's choices."""
        choices = choices or self.choices
        engine = build_engine(
            self.config.learner,
            mean=self.feed.mean,
            std=self.feed.std,
            seed=self.config.seed,
            device=self.device,
            precision=choices.precision,
            kind=choices.engine,
            layout=choices.layout,
            group=group,
        )
        move_weights(engine.parts.network, repeat=self.config.repeat, seed=self.config.seed)
        return engine

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _notify(self, method: str, *arguments: Any) -> None:
        for observer in self.observers:
            getattr(observer, method)(self, *arguments)
        for observer in self.plugins:
            call_plugin(observer, method, self, *arguments)

    @contextmanager
    def _pausing(self) -> Iterator[None]:
        """Time inside does not count as training."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.timer.pause()
        yield
        self.timer.resume()


def _count(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no count")
    return value
