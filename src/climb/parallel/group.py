"""The processes that train one learner: a single one, or the R processes that torchrun started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from climb.errors import ClimbError, InputError

# The other processes wait in a collective while the first one evaluates, however long that takes. torchrun ends all of
# them when one dies, so a short limit would only end healthy runs.
PATIENCE = timedelta(days=7)
ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(kw_only=True, eq=False)
class Group:
    """The processes that train one learner together. All must call the same methods in the same order.

    >>> Group().gather(torch.ones(2)).shape
    torch.Size([1, 2])
    """

    rank: int = 0
    """Number of this process."""
    size: int = 1
    """Number of processes."""
    fetches_own_share: bool = field(default=False, init=False)
    """Whether a `ShardedStore` gives this process only its own share of the images; see `own_share_only`."""

    @property
    def first(self) -> bool:
        """Whether this process writes files and evaluates."""
        return self.rank == 0

    def gather(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensors of all processes, of one shape, stacked (R, ...); the same bits everywhere."""
        if self.size == 1:
            return tensor[None]
        stacked = tensor.new_empty((self.size, *tensor.shape))
        dist.all_gather(list(stacked.unbind()), tensor.contiguous())
        return stacked

    def all_gather(self, *numbers: int) -> list[list[int]]:
        """A few whole numbers of each process, one row per process. The hosts exchange them; no device waits."""
        rows: list[list[int]] = self.gather(torch.tensor(numbers, dtype=torch.int64)).tolist()
        return rows

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, in place; the same bits everywhere."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def all_to_all(self, rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        """Send rows to each process, and return the rows that each sent here. Both are ordered by rank.

        Args:
            rows: (sum of ``sent``, ...).
            sent: rows for each process.
            received: rows from each process.
        """
        if self.size == 1:
            return rows
        out = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    def from_first(self, value: Any) -> Any:
        """The first process's value, in every process: anything that can be pickled."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    @contextmanager
    def first_process_first(self) -> Iterator[None]:
        """The other processes enter the context when the first has left it."""
        if not self.first:
            self.all_gather(0)
        yield
        if self.first:
            self.all_gather(0)

    @contextmanager
    def own_share_only(self) -> Iterator[None]:
        """Inside, a `ShardedStore` gives each process its own `chunk` of the images, and black ones for the rest.

        For a batch of which each process trains on its own rows only: R times fewer bytes travel.
        """
        before, self.fetches_own_share = self.fetches_own_share, True
        try:
            yield
        finally:
            self.fetches_own_share = before

    def check_agreement(self, *numbers: int) -> None:
        """Raise if the processes have different numbers."""
        rows = self.all_gather(*numbers)
        if any(row != rows[0] for row in rows):
            raise ClimbError(
                f"the processes of this run no longer agree on what the memory holds ({rows}): they need the same "
                "hardware, torch and data; continue from the last checkpoint with --nproc-per-node 1"
            )


SINGLE = Group()
"""The group of a process that trains alone."""


def is_first() -> bool:
    """Whether this process prints: the first that torchrun started, or the only one."""
    return int(os.environ.get("RANK", "0")) == 0 if _started_by_torchrun() else True


@contextmanager
def joined(device: torch.device) -> Iterator[Group]:
    """The group of this process and the others that torchrun started, with tensors on ``device``.

    Gives `SINGLE` to a process that torchrun did not start.
    """
    size = int(os.environ["WORLD_SIZE"]) if _started_by_torchrun() else 1
    if size == 1:
        yield SINGLE
        return
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"training across processes works on cpu and cuda; the device is {device}")
    # Both: hosts exchange counts and checkpoints while devices exchange rows and gradients.
    dist.init_process_group("gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl", timeout=PATIENCE)
    try:
        yield Group(rank=dist.get_rank(), size=size)
        dist.barrier()  # gloo aborts a process whose peers have gone before it
    finally:
        dist.destroy_process_group()


def own_device(name: str) -> str:
    """The name of this process's device. Of several processes on a machine, each takes its own GPU.

    >>> own_device("cpu")
    'cpu'
    """
    if not _started_by_torchrun() or int(os.environ["WORLD_SIZE"]) == 1 or name == "cpu":
        return name
    if name in ("auto", "cuda") and torch.cuda.is_available():
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local >= torch.cuda.device_count():
            raise InputError(
                f"{os.environ.get('LOCAL_WORLD_SIZE', 'several')} processes on a machine with "
                f"{torch.cuda.device_count()} CUDA device(s): start at most one a device, or type --device cpu"
            )
        torch.cuda.set_device(local)
        return f"cuda:{local}"
    if name.startswith("cuda:"):
        raise InputError(f"device '{name}' is one device for all processes; type --device cuda to give each its own")
    return name


def _started_by_torchrun() -> bool:
    return all(name in os.environ for name in ENVIRONMENT)
