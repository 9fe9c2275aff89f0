"""Runs on a Ray cluster: one that exists, or one of this machine that is started and stopped with the grid."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from climb.bench.executors.job import PATIENCE, Executor, Job, Outcome, Outcomes, one_line, run_job
from climb.bench.executors.slots import gpus, usable_cores
from climb.errors import ClimbError, InputError

RETRIES = 5
"""How often a run is taken up again whose worker or machine died."""


def ray_executor(*, address: str | None = None, device: str = "auto", per_device: int | None = None) -> Executor:
    """Runs jobs as Ray tasks. Run folders must lie where every machine of the cluster reaches them.

    A run whose worker or machine dies is taken up elsewhere, from its last checkpoint.

    Args:
        address: of the cluster ("auto": the one of this machine); None starts one of this machine's own, on loopback.
        device: "auto" uses GPUs where the cluster has any; "cpu", "cuda".
        per_device: runs at once on each GPU; each is given that share of it. On the CPU each run has one core.
    """
    if per_device is not None and per_device < 1:
        raise InputError(f"--per-device must be at least 1; given {per_device}")

    def run(jobs: Sequence[Job]) -> Outcomes:
        ray = _import_ray()
        if not jobs:  # no cluster for a table of finished runs
            return
        started = not ray.is_initialized()
        if started:
            _connect(ray, address, gpus(device), per_device)
        pending: dict[Any, Job] = {}
        try:
            share = _gpu_share(ray, device, per_device)
            task = ray.remote(run_job).options(
                num_cpus=1, num_gpus=share, max_retries=RETRIES, retry_exceptions=False, name="climb run"
            )
            place = "cuda" if share else ("cpu" if device == "auto" else device)
            for job in jobs:
                pending[task.remote(replace(job, execution=replace(job.execution, device=place)))] = job
            while pending:
                ready, _ = ray.wait(list(pending), timeout=1.0)
                for reference in ready:
                    job = pending.pop(reference)
                    yield job, _outcome(ray, reference)
        finally:
            _stop(ray, pending)
            if started:
                ray.shutdown()

    return run


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise InputError('--executor ray needs Ray: pip install "climb-ssl[cluster]"') from error


def _connect(ray: Any, address: str | None, devices: Sequence[str], per_device: int | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        if address is not None:
            ray.init(address=address, **quiet)
        else:
            cores = usable_cores() if devices or per_device is None else per_device
            ray.init(
                address="local",  # without it Ray would look for another cluster here, and refuse the number of cores
                num_cpus=cores,
                num_gpus=len(devices),
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                **quiet,
            )
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ClimbError(f"cannot reach the Ray cluster '{address or 'local'}': {one_line(error)}") from error


def _gpu_share(ray: Any, device: str, per_device: int | None) -> float:
    """GPUs of one run: a part of one where several runs share it, none on a cluster without."""
    there = ray.cluster_resources().get("GPU", 0)
    if device.startswith("cuda") and not there:
        raise InputError(f"--device {device} was asked for, but the Ray cluster has no GPU")
    return 1 / (per_device or 1) if there and device in ("auto", "cuda") else 0


def _outcome(ray: Any, reference: Any) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except ray.exceptions.RayError as error:  # its worker died more often than it is taken up again
        first = str(error).strip().splitlines()[0]
        return Outcome(status="failed", error=f"{type(error).__name__}: {first}; the same command continues the run")
    return outcome


def _stop(ray: Any, pending: dict[Any, Job]) -> None:
    """Ask each run once to stop, and give it time to save its state."""
    if not pending:
        return
    for reference in pending:
        ray.cancel(reference, force=False)
    ray.wait(list(pending), num_returns=len(pending), timeout=PATIENCE)
