"""Rows of a shared batch: the share of each process, and how results and gradients are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from climb.parallel.group import Group


def chunk(n: int, rank: int, size: int) -> slice:
    """The part of n rows that is ``rank``'s: all parts of one length but for one row, the longer ones first.

    >>> [chunk(5, rank, 3) for rank in range(3)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return slice(*(n // size * end + min(n % size, end) for end in (rank, rank + 1)))


def spread(function: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor, group: Group) -> torch.Tensor:
    """``function`` of all rows (n, ...), which every process has; each works out its part."""
    if group.size == 1:
        return function(inputs)
    parts = [chunk(len(inputs), rank, group.size) for rank in range(group.size)]
    counts = [part.stop - part.start for part in parts]
    return collect(function(inputs[parts[group.rank]]), counts, group)


def collect(own: torch.Tensor, counts: Sequence[int], group: Group) -> torch.Tensor:
    """This process's rows (m, ...) to those (n, ...) of all, process after process; ``counts``: how many each has.

    Gradients: every process goes on to work out the whole loss, so the gradient of its own rows is complete there,
    and those rows are all it takes of it. Nothing is exchanged on the way back, and nothing counted twice.
    """
    collected: torch.Tensor = _Collect.apply(own, tuple(counts), group)  # type: ignore[no-untyped-call]
    return collected


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, counts: tuple[int, ...], group: Group) -> torch.Tensor:
        ctx.own = slice(sum(counts[: group.rank]), sum(counts[: group.rank + 1]))
        padded = own.new_zeros((max(counts), *own.shape[1:]))  # a collective wants one shape of all
        padded[: len(own)] = own
        return torch.cat([rows[:count] for rows, count in zip(group.gather(padded), counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return gradient[ctx.own], None, None


@dataclass(frozen=True, kw_only=True)
class Share:
    """The rows of this process in a batch that several share: its part of the stream's, then of the replay's.

    Both kinds are split, so that what is done with replay rows alone is shared evenly too, and row i of the stream
    and row i of the replay, where there are as many, come to one process.
    """

    group: Group
    stream_rows: torch.Tensor
    """int64 (s,): rows of the whole batch that come from the stream."""
    replay_rows: torch.Tensor
    """int64 (r,): those that come from the memory."""

    @cached_property
    def _rows(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        kinds = (self.stream_rows, self.replay_rows)
        size = self.group.size
        return [(kinds[0][chunk(len(kinds[0]), k, size)], kinds[1][chunk(len(kinds[1]), k, size)]) for k in range(size)]

    @property
    def own(self) -> torch.Tensor:
        """int64 (m,): this process's rows of the whole batch, in the order in which it has them."""
        return torch.cat(self._rows[self.group.rank])

    @property
    def own_stream(self) -> torch.Tensor:
        """Which of its own rows come from the stream: the first ones."""
        return torch.arange(len(self._rows[self.group.rank][0]), device=self.stream_rows.device)

    @property
    def own_replay(self) -> torch.Tensor:
        """Which of its own rows come from the memory: the last ones."""
        streamed, replayed = self._rows[self.group.rank]
        return torch.arange(len(streamed), len(streamed) + len(replayed), device=self.stream_rows.device)

    def of_all(self, own: torch.Tensor) -> torch.Tensor:
        """Values (v, m, ...) of this process's rows to those (v, n, ...) of all rows, in the batch's order."""
        order = torch.cat([rows for kinds in self._rows for rows in kinds])
        counts = [len(streamed) + len(replayed) for streamed, replayed in self._rows]
        return collect(own.transpose(0, 1), counts, self.group).index_select(0, order.argsort()).transpose(0, 1)

    def of_replay(self, own: torch.Tensor) -> torch.Tensor:
        """Values (v, m', ...) of this process's replay rows to those (v, r, ...) of all, in the order of those rows."""
        counts = [len(replayed) for _, replayed in self._rows]
        return collect(own.transpose(0, 1), counts, self.group).transpose(0, 1)


@torch.no_grad()
def share_gradients(split: Iterable[nn.Parameter], whole: Iterable[nn.Parameter], group: Group) -> None:
    """Make the gradients of all processes those of the whole batch, in place and with one exchange.

    Args:
        split: parameters through which each process sent its own rows: their gradients add up.
        whole: parameters through which each sent all rows: their gradients are alike already, and are averaged so that
            rounding can never drive the processes apart.
        group: the processes.
    """
    if group.size == 1:
        return
    added = [parameter.grad for parameter in split if parameter.grad is not None]
    alike = [parameter.grad for parameter in whole if parameter.grad is not None]
    for gradient in alike:
        gradient.div_(group.size)
    gradients = added + alike
    total = group.all_reduce(torch.cat([gradient.flatten() for gradient in gradients]))
    parts = torch.split(total, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
