"""Executors run the jobs of a grid: in processes of this machine, on a Ray cluster, or on Slurm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from climb.bench.executors.cluster import ray_executor, slurm_executor
from climb.bench.executors.job import Executor, Job, Outcome, run_job
from climb.bench.executors.local import local_executor
from climb.errors import InputError, unknown

__all__ = ["EXECUTORS", "Executor", "ExecutorName", "Job", "Outcome", "Where", "choose_executor", "run_job"]

ExecutorName = Literal["local", "ray", "slurm"]
EXECUTORS: tuple[str, ...] = get_args(ExecutorName)


@dataclass(frozen=True, kw_only=True)
class Where:
    """The executor and its options."""

    executor: ExecutorName = "local"
    device: str = "auto"
    """"auto", "cpu", "cuda", "cuda:1"."""
    per_device: int | None = None
    """Runs at once on each GPU, or on the CPU."""
    address: str | None = None
    """Address of a Ray cluster; None starts a local one."""
    slurm: Mapping[str, str | int] = field(default_factory=dict)
    """submitit's parameters."""


def choose_executor(where: Where, out: Path) -> Executor:
    """The chosen executor; its logs go below ``out``.

    >>> choose_executor(Where(executor="local", address="auto"), Path("bench"))
    Traceback (most recent call last):
    climb.errors.InputError: --address is for --executor ray; given with local
    """
    executor, device, per_device = where.executor, where.device, where.per_device
    if executor not in EXECUTORS:
        raise unknown("executor", executor, EXECUTORS)
    for option, value, owner in (("--address", where.address, "ray"), ("--slurm", where.slurm or None, "slurm")):
        if value is not None and executor != owner:
            raise InputError(f"{option} is for --executor {owner}; given with {executor}")
    if per_device is not None and per_device < 1:
        raise InputError(f"--per-device must be at least 1; given {per_device}")
    if per_device is not None and executor == "slurm":
        raise InputError("--per-device is for --executor local and ray; on Slurm each run is a task of its own")
    if executor == "ray" and device.startswith("cuda:"):
        raise InputError(f"--device {device} names one GPU of this machine, but Ray assigns GPUs to runs; give cuda")
    if executor == "ray":
        return ray_executor(address=where.address, device=device, per_device=per_device)
    if executor == "slurm":
        return slurm_executor(folder=out / "slurm", options=where.slurm)
    return local_executor(device=device, per_device=per_device, logs=out / "logs")
