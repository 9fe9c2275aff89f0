"""One run of a grid. All executors run it by the same function."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from climb.engine import resolve_device
from climb.errors import ClimbError
from climb.files import leftovers, only_one, write_text
from climb.session import Finished, execute
from climb.settings.config import Execution, RunConfig

ERROR_FILE = "error.txt"
PATIENCE = 60.0
"""Seconds that a stopped run has to save its state, on every executor."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run for an executor."""

    config: RunConfig
    execution: Execution
    folder: Path
    label: str = ""
    """Its name for people: "CLIMB, 20 tasks, seed 0"."""

    @property
    def lock(self) -> Path:
        """The lock file of the process that runs the job. It lies beside the folder: a run needs an empty folder."""
        return self.folder.parent / f".{self.folder.name}.lock"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a job."""

    status: Literal["done", "failed", "interrupted"]
    error: str = ""
    """The error in one line."""


Outcomes = Generator[tuple[Job, Outcome], None, None]
Executor = Callable[[Sequence[Job]], Outcomes]
"""Runs jobs in any order and yields each with its outcome. Closing the generator stops running jobs, which can be
resumed."""


def run_job(job: Job) -> Outcome:
    """Start or resume a run. An error is written to ``error.txt`` in its folder and not raised.

    If another process has the run, wait, then find it finished or resume it.
    """
    error_path, threads = job.folder / ERROR_FILE, torch.get_num_threads()
    try:
        job.lock.parent.mkdir(parents=True, exist_ok=True)
        with only_one(job.lock):
            for path in (error_path, *leftovers(error_path)):  # of an earlier attempt
                path.unlink(missing_ok=True)
            try:
                if resolve_device(job.execution.device).type == "cpu":
                    # Parallel runs use the cores better than threads, whose number changes the last bits of sums.
                    torch.set_num_threads(1)
                execute(job.config, job.execution, job.folder)
            except Exception as error:
                text = str(error) if isinstance(error, ClimbError) else "".join(traceback.format_exception(error))
                write_text(error_path, text.rstrip() + "\n")  # while this process holds the lock
                raise
    except Finished:
        return Outcome(status="done")
    except KeyboardInterrupt:
        return Outcome(status="interrupted")
    except Exception as error:
        return Outcome(status="failed", error=one_line(error))
    finally:
        torch.set_num_threads(threads)
    return Outcome(status="done")


def one_line(error: BaseException) -> str:
    """An error in one line; with its type unless it is one of climb's.

    >>> one_line(ValueError("no"))
    'ValueError: no'
    """
    text = " ".join(str(error).split()) or "no message"
    return text if isinstance(error, ClimbError) else f"{type(error).__name__}: {text}"
