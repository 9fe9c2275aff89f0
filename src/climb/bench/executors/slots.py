"""How many runs fit on this machine at once, and on which device each."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from climb.engine import resolve_device
from climb.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A place for one run at a time."""

    device: str
    threads: int
    """CPU threads of a worker."""


def slots(device: str, per_device: int | None) -> tuple[Slot, ...]:
    """One slot a core on the CPU, ``per_device`` slots a GPU (1 unless given).

    >>> [slot.device for slot in slots("cpu", 2)]
    ['cpu', 'cpu']
    """
    if per_device is not None and per_device < 1:
        raise InputError(f"--per-device must be at least 1; given {per_device}")
    cores, place = usable_cores(), resolve_device(device).type  # refuses a device that is not here
    devices = gpus(device)
    if not devices:
        return (Slot(device=place, threads=1),) * (per_device or (cores if place == "cpu" else 1))
    each = per_device or 1
    threads = max(1, cores // (each * len(devices)))
    return tuple(Slot(device=name, threads=threads) for _ in range(each) for name in devices)


def gpus(device: str) -> list[str]:
    """The CUDA devices that ``device`` means: all of them for "auto" and "cuda", none for "cpu"."""
    if device.startswith("cuda:"):
        return [device]
    if device not in ("auto", "cuda"):
        return []
    return [f"cuda:{number}" for number in range(torch.cuda.device_count())]


def usable_cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
