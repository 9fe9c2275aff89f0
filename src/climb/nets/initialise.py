"""Weights that are a function of one generator and of nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

Built = TypeVar("Built", bound=nn.Module)


def initialised(build: Callable[[], Built], generator: torch.Generator) -> Built:
    """What ``build()`` makes, on the CPU, with weights drawn from ``generator`` (a CPU one).

    The module is built without storage, so that its constructors' own initialisation draws nothing: the
    global generator is neither read nor moved. Convolutions get He's normal (fan out), linear layers the uniform
    +-1/sqrt(fan in), batch norms one and zero: as torchvision's residual networks and torch's linear layers.

    >>> same = [initialised(lambda: nn.Linear(4, 2), torch.Generator().manual_seed(3)) for _ in range(2)]
    >>> torch.equal(same[0].weight, same[1].weight)
    True
    """
    with torch.device("meta"):
        module = build()
    module.to_empty(device="cpu")
    for part in module.modules():
        _fill(part, generator)
    return module


def _fill(part: nn.Module, generator: torch.Generator) -> None:
    if isinstance(part, nn.Conv2d) and part.bias is None:
        nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu", generator=generator)
    elif isinstance(part, nn.Linear):
        bound = 1 / math.sqrt(part.in_features)
        nn.init.uniform_(part.weight, -bound, bound, generator=generator)
        if part.bias is not None:
            nn.init.uniform_(part.bias, -bound, bound, generator=generator)
    elif isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
        part.reset_parameters()
    elif any(True for _ in part.parameters(recurse=False)) or any(True for _ in part.buffers(recurse=False)):
        # Left alone, it would keep whatever the memory held before.
        raise TypeError(f"no initialisation is defined for {part}")
