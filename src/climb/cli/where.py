"""Where runs are carried out, as the command line says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from climb.errors import InputError

if TYPE_CHECKING:
    from climb.bench.executors import Where


def queue_options(texts: Sequence[str]) -> dict[str, str | int]:
    """Parameters for Slurm; whole numbers as such.

    >>> queue_options(["slurm_partition=gpu", "timeout_min=600"])
    {'slurm_partition': 'gpu', 'timeout_min': 600}
    """
    options: dict[str, str | int] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise InputError(f"--slurm takes NAME=VALUE, such as slurm_partition=gpu; given '{text}'")
        options[name] = int(value) if value.isdecimal() else value
    return options


def kind_of_device(where: Where) -> str:
    """ "cpu" or "cuda": what the runs will find. On a cluster the word of this machine is the best guess."""
    from climb.bench.executors.slots import gpus

    if where.executor == "slurm" and where.slurm.get("gpus_per_node"):
        return "cuda"
    return "cuda" if where.device.startswith("cuda") or gpus(where.device) else where.device.replace("auto", "cpu")


def parallel_runs(where: Where) -> int | None:
    """How many runs proceed at full speed at once; None where a cluster decides. Runs that share a GPU share it."""
    from climb.bench.executors.slots import gpus, slots

    if where.executor != "local":
        return None
    return len(gpus(where.device)) or len(slots(where.device, where.per_device))
