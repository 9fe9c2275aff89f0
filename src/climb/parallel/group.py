"""Who trains this learner: one process, or the R processes that torchrun started."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from climb.errors import ClimbError, InputError

# The others wait in a collective while the first process evaluates, however long that takes. torchrun ends them all
# when one of them dies, so a short limit would only end runs that are well.
PATIENCE = timedelta(days=7)
Done = TypeVar("Done")
ENVIRONMENT = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True)
class Group:
    """The processes that train one learner together. Every one must call the same things in the same order.

    >>> Group().gather(torch.ones(2)).shape
    torch.Size([1, 2])
    """

    rank: int = 0
    """Number of this process."""
    size: int = 1
    """How many there are."""

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

    def add_up(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, in place; the same bits everywhere."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def exchange(self, rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        """Rows (sum of ``sent``, ...), those for rank 0 first; what the others sent here, that of rank 0 first."""
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

    def first_then_others(self, work: Callable[[], Done]) -> Done:
        """Each process's own outcome of ``work``, which the others begin when the first has done it."""
        if not self.first:
            self.table(0)
        done = work()
        if self.first:
            self.table(0)
        return done

    def table(self, *numbers: int) -> list[list[int]]:
        """A few whole numbers of each process, one row a process; by way of the hosts, no device waits."""
        found: list[list[int]] = self.gather(torch.tensor(numbers, dtype=torch.int64)).tolist()
        return found

    def check_agreement(self, *numbers: int) -> None:
        """Stop if the processes, which must all come to the same numbers, have not."""
        rows = self.table(*numbers)
        if any(row != rows[0] for row in rows):
            raise ClimbError(
                f"the processes of this run no longer agree on what the memory holds ({rows}): they need the same "
                "hardware, torch and data; continue from the last checkpoint with --nproc-per-node 1"
            )


_current = Group()


def current() -> Group:
    """The group that this process is in; a group of one outside of `joined`."""
    return _current


def is_first() -> bool:
    """Whether this process is the one that speaks to people: the first of those torchrun started, or the only one."""
    return int(os.environ.get("RANK", "0")) == 0 if _started_by_torchrun() else True


@contextmanager
def joined(device: torch.device) -> Iterator[Group]:
    """Inside, this process and the others that torchrun started are one group, whose tensors are on ``device``.

    A process that was started alone is a group of one, and nothing is set up.
    """
    size = int(os.environ["WORLD_SIZE"]) if _started_by_torchrun() else 1
    if size == 1:
        yield Group()
        return
    if device.type not in ("cpu", "cuda"):
        raise InputError(f"training across processes works on cpu and cuda; the device is {device}")
    # Both: hosts exchange counts and checkpoints while devices exchange rows and gradients.
    dist.init_process_group("gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl", timeout=PATIENCE)
    try:
        with _be(Group(rank=dist.get_rank(), size=size)) as group:
            yield group
        dist.barrier()  # gloo aborts a process whose peers have gone before it
    finally:
        dist.destroy_process_group()


@contextmanager
def alone() -> Iterator[Group]:
    """Inside, this process is a group of one: what is built here waits for nobody."""
    with _be(Group()) as group:
        yield group


@contextmanager
def _be(group: Group) -> Iterator[Group]:
    global _current
    before, _current = _current, group
    try:
        yield group
    finally:
        _current = before


def own_device(name: str) -> str:
    """The device of this process by name: with several processes on a machine, each takes its own GPU.

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
