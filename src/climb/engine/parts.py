"""The four sockets of a method, filled."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from climb.alignment import Alignment
from climb.engine.batch import BatchRule
from climb.memory import Memory
from climb.nets import Network
from climb.objectives import Objective


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A method is a choice of these and nothing else."""

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

    @property
    def teacher(self) -> Network | None:
        """The alignment's reference network, where it has one that can be evaluated in place of the trained one."""
        teacher = self.alignment.teacher if self.alignment is not None else None
        return teacher if isinstance(teacher, Network) else None

    def prepare(self, device: torch.device) -> None:
        """Move all that is trained to the device, in train mode."""
        for module in (self.network, self.objective, self.alignment):
            if module is not None:
                module.to(device)
                if device.type == "cuda":  # the layout bf16 convolutions are fast in, and `weight_gradients` counts on
                    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
                module.train()
