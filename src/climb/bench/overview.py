"""A grid while it is being carried out: running, done, failed, time left, best so far."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from climb.bench.estimate import say_seconds, work_of
from climb.bench.executors import Job, Outcome
from climb.runs import RunFolder

LEAST_KNOWN = 0.02
"""Runs, or part of one, that a pace is taken from."""
SHOWN = 12
"""Running and failed runs that are named; more are counted."""


class Overview:
    """Lives on a terminal; elsewhere it is a line per run. What runs is read off the run folders, which all executors
    share."""

    def __init__(self, jobs: Sequence[Job], *, metric: str = "final_accuracy", console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._waiting = {job.folder: job for job in jobs}
        self._total = len(jobs)
        self._metric = metric
        self._at_first = {job.folder: _share_done(job) for job in jobs}
        """What of each run was there before: it says nothing of the pace."""
        self._began = time.monotonic()
        self._began_at = time.time()
        self.done: list[Job] = []
        self.failed: list[tuple[Job, Outcome]] = []
        self.unfinished: list[Job] = []
        self._best: tuple[float, str] | None = None
        self._live = Live(
            get_renderable=self._picture, console=self._console, refresh_per_second=1, transient=True, screen=False
        )

    def __enter__(self) -> Overview:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def note(self, job: Job, outcome: Outcome) -> None:
        """A job is over."""
        self._waiting.pop(job.folder, None)
        if outcome.status == "done":
            self.done.append(job)
            said = self._remember(job, RunFolder(job.folder).result() or {})
        elif outcome.status == "failed":
            self.failed.append((job, outcome))
            said = f"FAILED: {outcome.error}"
        else:
            self.unfinished.append(job)
            said = "interrupted; the same command continues it"
        if not self._console.is_terminal:
            self._console.print(f"[{self._over}/{self._total}] {job.label}: {said}{self._ahead()}", markup=False)

    def seconds_left(self) -> float | None:
        """By the pace so far, of whole runs and of parts; None where nothing is known of it yet."""
        ahead = {folder: 1 - first for folder, first in self._at_first.items() if folder in self._waiting}
        ahead |= {job.folder: 1 - _share_done(job) for job in self._running()}  # others have not moved
        done = sum(1 - first - ahead.get(folder, 0.0) for folder, first in self._at_first.items())
        return (time.monotonic() - self._began) * sum(ahead.values()) / done if done > LEAST_KNOWN else None

    def _ahead(self) -> str:
        left = self.seconds_left()
        return "" if left is None or not self._waiting else f"; about {say_seconds(left)} left"

    @property
    def _over(self) -> int:
        return self._total - len(self._waiting)

    def _remember(self, job: Job, result: dict[str, Any]) -> str:
        value = result.get(self._metric)
        if value is None:
            return "done"
        if self._best is None or value > self._best[0]:
            self._best = (value, job.label)
        name = self._metric.replace("_", " ")
        return f"{name} {value:.2f} % ({say_seconds(result['seconds']['total'])})"

    def _running(self) -> list[Job]:
        """Runs that wrote to their journals since the grid began, and are not over."""
        return [
            job
            for folder, job in list(self._waiting.items())
            if _changed(RunFolder(folder).journal.path, self._began_at)
        ]

    def _picture(self) -> RenderableType:
        running = self._running()
        counts = f"{len(running)} running, {len(self.done)} of {self._total} done, {len(self.failed)} failed"
        head = Table.grid(padding=(0, 1))
        head.add_row(
            ProgressBar(total=max(1, self._total), completed=self._over, width=20), Text(counts + self._ahead())
        )
        lines: list[RenderableType] = [head]
        lines += [Text(f"  {job.label}: {_progress(job.folder)}") for job in running[:SHOWN]]
        lines += [Text(f"  and {len(running) - SHOWN} more")] if len(running) > SHOWN else []
        lines += [
            Text(f"  failed: {job.label}: {outcome.error}", style="red", no_wrap=True, overflow="ellipsis")
            for job, outcome in self.failed[-SHOWN:]
        ]
        if self._best is not None:
            lines.append(Text(f"best so far: {self._best[0]:.2f} %, {self._best[1]}"))
        return Group(*lines)


def _changed(path: Path, since: float) -> bool:
    try:
        return path.stat().st_mtime >= since
    except OSError:
        return False


def _share_done(job: Job) -> float:
    """How much of its stream a run has seen, by its journal; 0 where the size of the stream is not known."""
    last, work = RunFolder(job.folder).journal.last(), work_of(job.config, "cpu")
    if last is None or work is None:
        return 0.0
    return min(1.0, int(last["batch"]) * job.config.learner.stream_batch / work.stream_images)


def _progress(folder: Path) -> str:
    """Where a run stands, by the last line of its journal."""
    last = RunFolder(folder).journal.last()
    return "at work" if last is None else f"mini-batch {last['batch']}"
