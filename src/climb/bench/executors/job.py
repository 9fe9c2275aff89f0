"""One run of a grid, the same wherever it is carried out."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from climb.config import Execution, RunConfig
from climb.engine import resolve_device
from climb.errors import ClimbError
from climb.files import leftovers, write_text
from climb.lock import only_one
from climb.runs import Finished, execute

ERROR_FILE = "error.txt"
PATIENCE = 60.0
"""Seconds that a run is given to save its state when it is asked to stop, wherever it is carried out."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What an executor is given: which run, how, where."""

    config: RunConfig
    execution: Execution
    folder: Path
    label: str = ""
    """What people call it: "CLIMB, 20 tasks, seed 0"."""

    @property
    def lock(self) -> Path:
        """Whoever carries the run out holds this file. Not inside: a run must find its folder empty."""
        return self.folder.parent / f".{self.folder.name}.lock"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a job."""

    status: Literal["done", "failed", "interrupted"]
    error: str = ""
    """What went wrong, in a line."""


Outcomes = Generator[tuple[Job, Outcome], None, None]
Executor = Callable[[Sequence[Job]], Outcomes]
"""Carries out jobs, in any order; gives each with its outcome as soon as it has one. Closing the generator stops what
is running; every run can be continued."""


def run_job(job: Job) -> Outcome:
    """Carry out a run, or continue it. A failure is written beside it, as ``error.txt``, and raises nothing.

    Where another process has the run, this one waits, then finds it finished or continues it.
    """
    error_path = job.folder / ERROR_FILE
    try:
        job.lock.parent.mkdir(parents=True, exist_ok=True)
        with only_one(job.lock), one_thread(job.execution.device):
            for left in (error_path, *leftovers(error_path)):  # of an earlier attempt
                left.unlink(missing_ok=True)
            try:
                execute(job.config, job.execution, job.folder)
            except Exception as error:
                whole = str(error) if isinstance(error, ClimbError) else "".join(traceback.format_exception(error))
                write_text(error_path, whole.rstrip() + "\n")  # before another process has its turn
                raise
    except Finished:
        return Outcome(status="done")
    except KeyboardInterrupt:
        return Outcome(status="interrupted")
    except Exception as error:
        return Outcome(status="failed", error=one_line(error))
    return Outcome(status="done")


def one_line(error: BaseException) -> str:
    """The error in a line; its kind too, where it is not one of ours.

    >>> one_line(ValueError("no"))
    'ValueError: no'
    """
    text = " ".join(str(error).split()) or "no message"
    return text if isinstance(error, ClimbError) else f"{type(error).__name__}: {text}"


@contextmanager
def one_thread(device: str) -> Iterator[None]:
    """Inside, a run on the CPU has one thread, on whatever machine: runs share the cores better than threads do, and
    sums that are split over other threads have other last bits."""
    before = torch.get_num_threads()
    if resolve_device(device).type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
