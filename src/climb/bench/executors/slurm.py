"""Runs as an array job of Slurm, through submitit."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from climb.bench.executors.job import PATIENCE, Executor, Job, Outcome, Outcomes, one_line, run_job
from climb.errors import InputError
from climb.runs.interrupt import outliving_sigterm

POLL = 2.0
"""Seconds between two looks at the queue."""
DEFAULTS: dict[str, Any] = {"timeout_min": 24 * 60, "cpus_per_task": 1, "nodes": 1}


class ResumableRun:
    """A run that Slurm may preempt or time out: it is queued again and goes on from its last checkpoint."""

    def __call__(self, job: Job) -> Outcome:
        """Carry the job out.

        SIGTERM comes before preemption and after `scancel` alike, so it must neither end the run, which is then never
        queued again, nor queue what was cancelled. The state is saved. What follows decides: the signal on which
        submitit queues the run again, or the end.
        """
        with outliving_sigterm():
            return run_job(job)

    def checkpoint(self, job: Job) -> Any:
        """What submitit queues in its place: the same, since the run folder holds its state."""
        return importlib.import_module("submitit").helpers.DelayedSubmission(self, job)


def slurm_executor(*, folder: Path, options: Mapping[str, str | int] | None = None) -> Executor:
    """Submits all jobs as one array and waits for them. Run folders must lie on storage that all nodes share.

    Args:
        folder: for submitit's scripts and logs.
        options: submitit's parameters: ``slurm_partition``, ``slurm_array_parallelism``, ``gpus_per_node``,
            ``timeout_min``; ``cluster`` "local" runs them as processes of this machine instead.
    """
    chosen = {**DEFAULTS, **(options or {})}
    cluster = str(chosen.pop("cluster", "slurm"))

    def run(jobs: Sequence[Job]) -> Outcomes:
        submitit = _import_submitit()
        try:
            queue = submitit.AutoExecutor(folder=folder, cluster=cluster)
            queue.update_parameters(**{"name": "climb", **chosen})
        except (RuntimeError, ValueError, NameError, TypeError) as error:
            raise InputError(f"cannot submit to {cluster}: {one_line(error)}") from error
        if not jobs:
            return
        pending = dict(zip(queue.map_array(ResumableRun(), list(jobs)), jobs, strict=True))
        try:
            while pending:
                over = [submitted for submitted in pending if submitted.done()]
                for submitted in over:
                    yield pending.pop(submitted), _outcome(submitted)
                if not over:
                    time.sleep(POLL if cluster == "slurm" else 0.1)
        finally:
            _cancel(list(pending))

    return run


def _import_submitit() -> Any:
    try:
        return importlib.import_module("submitit")
    except ImportError as error:
        raise InputError('--executor slurm needs submitit: pip install "climb-ssl[cluster]"') from error


def _outcome(submitted: Any) -> Outcome:
    try:
        outcome: Outcome = submitted.result()
    except Exception as error:  # submitit's own, or whatever the job's process raised
        last = one_line(error)
        return Outcome(status="failed", error=f"job {submitted.job_id}: {last}; log: {submitted.paths.stderr}")
    return outcome


def _cancel(submitted: Sequence[Any]) -> None:
    """Slurm asks each run to stop; its state is saved before the time it grants is over."""
    for job in submitted:
        job.cancel(check=False)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and not all(job.done() for job in submitted):
        time.sleep(0.1)
