"""Run jobs on a cluster: as tasks of Ray, or as an array job of Slurm through submitit."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from climb.bench.executors.job import PATIENCE, Executor, Job, Outcome, Outcomes, one_line, run_job
from climb.bench.executors.local import gpus
from climb.errors import ClimbError, InputError
from climb.precision import usable_cores
from climb.session.signals import outliving_sigterm

RETRIES = 5
"""Attempts of Ray to resume a run after its worker or machine died."""
POLL = 2.0
"""Seconds between two looks at Slurm's queue."""
DEFAULTS: dict[str, Any] = {"timeout_min": 24 * 60, "cpus_per_task": 1, "nodes": 1}
"""Parameters of submitit unless given."""


def _import(module: str, executor: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f'--executor {executor} needs {module}: pip install "climb-ssl[cluster]"') from error


# -- Ray ---------------------------------------------------------------------------------------------------------------


def ray_executor(*, address: str | None = None, device: str = "auto", per_device: int | None = None) -> Executor:
    """Runs jobs as Ray tasks. All machines of the cluster must share the run folders.

    If a worker or machine dies, its run resumes elsewhere from the last checkpoint.

    Args:
        address: address of the cluster ("auto": the one on this machine); None starts a local one on loopback, which
            stops with the grid.
        device: "auto" uses the cluster's GPUs if it has any; "cpu", "cuda".
        per_device: runs at once on each GPU, each with that share of it. On the CPU each run has one core.
    """

    def run(jobs: Sequence[Job]) -> Outcomes:
        ray = _import("ray", "ray")
        if not jobs:  # a table of finished runs needs no cluster
            return
        started = not ray.is_initialized()
        if started:
            _connect(ray, address, gpus(device), per_device)
        pending: dict[Any, Job] = {}
        try:
            share = _gpu_share(ray, device, per_device)
            options = {"num_cpus": 1, "num_gpus": share, "max_retries": RETRIES, "retry_exceptions": False}
            task = ray.remote(run_job).options(name="climb run", **options)
            place = "cuda" if share else ("cpu" if device == "auto" else device)
            for job in jobs:
                pending[task.remote(replace(job, execution=replace(job.execution, device=place)))] = job
            while pending:
                ready, _ = ray.wait(list(pending), timeout=1.0)
                for reference in ready:
                    yield pending.pop(reference), _ray_outcome(ray, reference)
        finally:
            if pending:
                for reference in pending:
                    ray.cancel(reference, force=False)  # once: the run saves its state
                ray.wait(list(pending), num_returns=len(pending), timeout=PATIENCE)
            if started:
                ray.shutdown()

    return run


def _connect(ray: Any, address: str | None, devices: Sequence[str], per_device: int | None) -> None:
    local = {
        "address": "local",  # otherwise Ray looks for another local cluster and rejects the number of cores
        "num_cpus": usable_cores() if devices or per_device is None else per_device,
        "num_gpus": len(devices),
        "include_dashboard": False,
        "_node_ip_address": "127.0.0.1",
    }
    try:
        ray.init(**(local if address is None else {"address": address}), log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ClimbError(f"cannot reach the Ray cluster '{address or 'local'}': {one_line(error)}") from error


def _gpu_share(ray: Any, device: str, per_device: int | None) -> float:
    """GPUs per run: a fraction if several runs share one, 0 on a cluster without GPUs."""
    available = ray.cluster_resources().get("GPU", 0)
    if device.startswith("cuda") and not available:
        raise InputError(f"the Ray cluster has no GPU; given --device {device}")
    return 1 / (per_device or 1) if available and device in ("auto", "cuda") else 0


def _ray_outcome(ray: Any, reference: Any) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:  # all retries failed
        first = str(error).strip().splitlines()[0]
        return Outcome(status="failed", error=f"{type(error).__name__}: {first}; the same command continues the run")
    return outcome


# -- Slurm -------------------------------------------------------------------------------------------------------------


class ResumableRun:
    """A run that Slurm may preempt or time out. It is queued again and resumes from its last checkpoint."""

    def __call__(self, job: Job) -> Outcome:
        """Run the job.

        Slurm sends SIGTERM both before preemption and after `scancel`. The run saves its state and waits: the signal
        that follows makes submitit queue the run again, or ends it.
        """
        with outliving_sigterm():
            return run_job(job)

    def checkpoint(self, job: Job) -> Any:
        """What submitit queues next: the same job, whose folder holds its state."""
        return _import("submitit", "slurm").helpers.DelayedSubmission(self, job)


def slurm_executor(*, folder: Path, options: Mapping[str, str | int] | None = None) -> Executor:
    """Submits all jobs as one array and waits for them. All nodes must share the run folders.

    Args:
        folder: for submitit's scripts and logs.
        options: submitit's parameters: ``slurm_partition``, ``slurm_array_parallelism``, ``gpus_per_node``,
            ``timeout_min``. With ``cluster`` "local", jobs are processes of this machine.
    """
    parameters = {"name": "climb", **DEFAULTS, **(options or {})}
    cluster = str(parameters.pop("cluster", "slurm"))

    def run(jobs: Sequence[Job]) -> Outcomes:
        submitit = _import("submitit", "slurm")
        try:
            queue = submitit.AutoExecutor(folder=folder, cluster=cluster)
            queue.update_parameters(**parameters)
        except (RuntimeError, ValueError, NameError, TypeError) as error:
            raise InputError(f"cannot submit to {cluster}: {one_line(error)}") from error
        if not jobs:
            return
        pending = dict(zip(queue.map_array(ResumableRun(), list(jobs)), jobs, strict=True))
        try:
            while pending:
                finished = [submitted for submitted in pending if submitted.done()]
                for submitted in finished:
                    yield pending.pop(submitted), _slurm_outcome(submitted)
                if not finished:
                    time.sleep(POLL if cluster == "slurm" else 0.1)
        finally:
            for submitted in pending:
                submitted.cancel(check=False)
            deadline = time.monotonic() + PATIENCE  # for the runs to save their state
            while time.monotonic() < deadline and not all(submitted.done() for submitted in pending):
                time.sleep(0.1)

    return run


def _slurm_outcome(submitted: Any) -> Outcome:
    try:
        outcome: Outcome = submitted.result()
    except Exception as error:  # from submitit or from the job's process
        error_text = one_line(error)
        return Outcome(status="failed", error=f"job {submitted.job_id}: {error_text}; log: {submitted.paths.stderr}")
    return outcome
