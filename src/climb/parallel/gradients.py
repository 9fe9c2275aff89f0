"""The gradient of the whole batch, from what each process has worked out of it."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

from climb.parallel.group import Group


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
    total = group.add_up(torch.cat([gradient.flatten() for gradient in gradients]))
    parts = torch.split(total, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
