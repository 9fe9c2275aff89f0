"""The average of the weights that an encoder started from and those that it has learned."""

from __future__ import annotations

import copy

import torch
from torch import nn

from climb.nets.network import Network


class StartAverage(nn.Module):
    """Holds the start of a network's encoder, and the average ``start + share * (student - start)``.

    Weights that stay in one basin can be averaged: the average keeps most of what the start knew, and most of what the
    student has learned (Wortsman et al., 2022). Running statistics are averaged like weights. The projector is the
    student's.

    Args:
        student: the trained network, at its start.
        share: of the student in the average, in 0..1.

    >>> from climb.nets import build_network
    >>> student = build_network("micro", 32, generator=torch.Generator().manual_seed(0))
    >>> average = StartAverage(student, 0.5)
    >>> with torch.no_grad():
    ...     _ = next(student.encoder.parameters()).add_(1.0)
    >>> average.update(student)
    >>> gap = next(student.encoder.parameters()) - next(average.network.encoder.parameters())
    >>> round(gap.mean().item(), 4)
    0.5
    """

    def __init__(self, student: Network, share: float) -> None:
        super().__init__()
        self.share = share
        self.start = copy.deepcopy(student.encoder).requires_grad_(False)
        self.network = copy.deepcopy(student).requires_grad_(False)
        """The average; it changes in place."""

    @torch.no_grad()
    def update(self, student: Network) -> None:
        """Follow the student."""
        average = _floats(self.network.encoder)
        torch._foreach_copy_(average, _floats(self.start))
        torch._foreach_lerp_(average, _floats(student.encoder), self.share)
        torch._foreach_copy_(_floats(self.network.projector), _floats(student.projector))


def _floats(module: nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers but for counters."""
    return [value for value in (*module.parameters(), *module.buffers()) if value.is_floating_point()]
