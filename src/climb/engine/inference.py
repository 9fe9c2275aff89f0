"""How every network is looked through that is not being trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from climb.engine.numerics import Precision, autocast, numerics
from climb.nets import frozen


@contextmanager
def inference(network: nn.Module, device: torch.device, precision: Precision) -> Iterator[None]:
    """Inside, forwards of ``network`` are those of evaluation mode, without gradients, under ``precision``.

    A step of an engine embeds by its own forward instead: that one is compiled, and tuned to shapes that keep coming.

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    >>> with inference(network, torch.device("cpu"), "bf16"):
    ...     seen = network(torch.zeros(1, 2))
    >>> seen.dtype, seen.requires_grad, network.training
    (torch.bfloat16, False, True)
    """
    with frozen(network), numerics(device, precision), autocast(device, precision):
        yield
