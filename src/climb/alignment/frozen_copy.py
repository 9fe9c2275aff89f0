"""A copy of the network as it once was."""

from __future__ import annotations

import copy
from itertools import chain
from typing import TypeVar

import torch
from torch import nn

Copied = TypeVar("Copied", bound=nn.Module)


def frozen_copy(student: Copied) -> Copied:
    """The student as it is now, apart from it and without gradients.

    >>> student = nn.Linear(2, 2)
    >>> past = frozen_copy(student)
    >>> torch.equal(past.weight, student.weight), past.weight is student.weight, past.weight.requires_grad
    (True, False, False)
    """
    return copy.deepcopy(student).requires_grad_(False)


@torch.no_grad()
def copy_state(student: nn.Module, into: nn.Module) -> None:
    """Bring an older copy up to date, parameters and buffers, in place: a captured step knows its addresses."""
    older, newer = chain(into.parameters(), into.buffers()), chain(student.parameters(), student.buffers())
    for old, new in zip(older, newer, strict=True):
        old.copy_(new)
