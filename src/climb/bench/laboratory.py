"""A plan carried out: every run once, a failure costs nobody else, an interruption costs nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from rich.console import Console

from climb.bench.executors import Executor, Job
from climb.bench.overview import Overview


@dataclass(frozen=True, kw_only=True)
class Report:
    """What became of the jobs."""

    done: tuple[str, ...]
    """Labels of the runs that were finished now."""
    failed: tuple[tuple[str, str], ...]
    """Label and error of each run that failed; the whole error is in its folder, in ``error.txt``."""
    unfinished: tuple[str, ...]
    """Labels of runs that somebody stopped."""


def carry_out(
    jobs: Sequence[Job], executor: Executor, *, metric: str = "final_accuracy", console: Console | None = None
) -> Report:
    """Carry out jobs and watch them. Ctrl-C or a polite kill stops all of them, resumable, and goes
    on to the caller as KeyboardInterrupt."""
    with Overview(jobs, metric=metric, console=console) as overview, polite_kill():
        outcomes = executor(jobs)
        try:
            for job, outcome in outcomes:
                overview.note(job, outcome)
        finally:
            outcomes.close()  # stops what is still running
    return Report(
        done=tuple(job.label for job in overview.done),
        failed=tuple((job.label, outcome.error) for job, outcome in overview.failed),
        unfinished=tuple(job.label for job in overview.unfinished),
    )


@contextmanager
def polite_kill() -> Iterator[None]:
    """Inside, SIGTERM is what Ctrl-C is: the runs are asked to save their state before the process ends.

    Ctrl-C itself is seen to as well: a shell has its background jobs ignore it, and a job that is sent one means it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals belong to the main thread
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
