"""Executors by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from climb.bench.executors.job import Executor
from climb.bench.executors.local import local_executor
from climb.bench.executors.on_ray import ray_executor
from climb.bench.executors.slurm import slurm_executor
from climb.errors import InputError, unknown

ExecutorName = Literal["local", "ray", "slurm"]
EXECUTORS: tuple[str, ...] = get_args(ExecutorName)


@dataclass(frozen=True, kw_only=True)
class Where:
    """Where runs are carried out."""

    executor: ExecutorName = "local"
    device: str = "auto"
    """"auto", "cpu", "cuda", "cuda:1"."""
    per_device: int | None = None
    """Runs at once on each GPU, or on the CPU."""
    address: str | None = None
    """Of a Ray cluster; None starts a local one."""
    slurm: Mapping[str, str | int] = field(default_factory=dict)
    """submitit's parameters."""


def choose_executor(where: Where, out: Path) -> Executor:
    """The executor that a person asked for; its logs go below ``out``.

    >>> choose_executor(Where(executor="local", address="auto"), Path("bench"))
    Traceback (most recent call last):
    climb.errors.InputError: --address is for --executor ray; given with local
    """
    if where.executor not in EXECUTORS:
        raise unknown("executor", where.executor, EXECUTORS)
    if where.address is not None and where.executor != "ray":
        raise InputError(f"--address is for --executor ray; given with {where.executor}")
    if where.slurm and where.executor != "slurm":
        raise InputError(f"--slurm is for --executor slurm; given with {where.executor}")
    if where.executor == "ray":
        if where.device.startswith("cuda:"):
            raise InputError(f"--device {where.device} names one GPU of this machine; Ray gives each run its own: cuda")
        return ray_executor(address=where.address, device=where.device, per_device=where.per_device)
    if where.executor == "slurm":
        if where.per_device is not None:
            raise InputError("--per-device is for --executor local and ray; on Slurm each run is a task of its own")
        return slurm_executor(folder=out / "slurm", options=where.slurm)
    return local_executor(device=where.device, per_device=where.per_device, logs=out / "logs")
