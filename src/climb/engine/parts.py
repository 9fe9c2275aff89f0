"""The parts of a method, and how they are prepared for a device and for several processes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from climb.alignment import Alignment
from climb.engine.batch import BatchRule, MemoryOnly, MixUp, StreamAndReplay
from climb.errors import InputError
from climb.memory import Memory
from climb.nets import Network, StartAverage, frozen
from climb.objectives import Objective
from climb.parallel import Group, share_statistics

log = logging.getLogger(__name__)

Layout = Literal["contiguous", "channels-last"]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The network and the parts in the four sockets of a method."""

    network: Network
    """The encoder and projector that are trained."""
    memory: Memory | None
    """What do we keep?"""
    batch: BatchRule
    """What do we train on?"""
    objective: Objective
    """What do we learn?"""
    alignment: Alignment | None
    """What must not drift?"""
    average: StartAverage | None = None
    """The average of start and trained weights, if that is what is evaluated."""

    @property
    def teacher(self) -> Network | None:
        """The alignment's reference network, if it can be evaluated in place of the trained one."""
        teacher = self.alignment.teacher if self.alignment is not None else None
        return teacher if isinstance(teacher, Network) else None

    def prepare(self, device: torch.device) -> None:
        """Move networks and heads to the device, in train mode."""
        for module in self._modules():
            module.to(device)
            module.train()
        if device.type == "cuda":  # the layout in which bf16 convolutions are fast
            self.lay_out("channels-last")

    def lay_out(self, layout: Layout, image_size: int | None = None) -> None:
        """Give the kernels of convolutions a memory layout; see `lay_out`."""
        lay_out(self._modules(), layout, image_size)

    def _modules(self) -> list[nn.Module]:
        modules = (self.network, self.objective, self.alignment, self.average)
        return [module for module in modules if module is not None]


def lay_out(modules: Sequence[nn.Module], layout: Layout, image_size: int | None = None) -> None:
    """Give the kernels of convolutions a memory layout; images follow. Numbers change in the last bits only.

    Given an ``image_size``, all modules keep the contiguous layout if the first one, a network, fails with channels
    last, since it views images as rows.
    """
    memory_format = torch.channels_last if layout == "channels-last" else torch.contiguous_format
    for module in modules:
        module.to(memory_format=memory_format)  # type: ignore[call-overload]
    if layout == "contiguous" or image_size is None:
        return
    network = modules[0]
    try:
        with frozen(network):
            network(torch.zeros(1, 3, image_size, image_size, device=next(network.parameters()).device))
    except RuntimeError as error:
        log.info("the network keeps the contiguous layout: %s", str(error).splitlines()[0])
        lay_out(modules, "contiguous")


def prepare_across(parts: Parts, group: Group) -> None:
    """Prepare the parts for processes that share each batch. A single process needs nothing.

    Networks see the rows of one process, so their batch norms exchange statistics. Heads of objectives and alignments
    see all rows in every process, and stay as they are.
    """
    if group.size == 1:
        return
    if type(parts.batch).mix not in (BatchRule.mix, MixUp.mix):
        raise InputError(
            f"{type(parts.batch).__name__} mixes rows in a way of its own, which processes with a part of the rows "
            "cannot follow: train it in one process"
        )
    for part in (parts.network, parts.objective, parts.alignment):
        for module in list(part.modules()) if part is not None else []:
            if isinstance(module, Network):
                share_statistics(module, group)


def fetching(rule: BatchRule, group: Group) -> AbstractContextManager[None]:
    """A context for calling the rule, in which each process gets only its own share of replayed images if possible."""
    # Our rules keep a draw whole and in order, so the share of each process is known. Others may shuffle it.
    ours = type(rule).__call__ in (StreamAndReplay.__call__, MemoryOnly.__call__, MixUp.__call__)
    return group.own_share_only() if ours and group.size > 1 else nullcontext()
