"""A network that is only looked through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients inside; every module's own training flag back after.

    Restoring flag by flag matters: ``network.train()`` would also wake up parts that were kept in evaluation mode
    on purpose.
    """
    flags = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in flags:
            module.training = training
