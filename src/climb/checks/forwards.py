"""How many views and images networks see without a gradient, whosever networks they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves


@dataclass
class Forwards:
    """Two counts that go on, nearly always the same."""

    rows: int = 0
    """Of calls of networks by others than networks."""
    most: int = 0
    """Of the innermost calls with images: several networks may be held, and called, by one."""


@contextmanager
def counted() -> Iterator[Forwards]:
    """Count the rows of every call of a network inside whose output has no gradient.

    A network is a module with parameters or buffers that is called with images (n, 3 or 1, H, W) first and makes
    something else of them; what it calls in turn is part of it. So the encoder counts where it is called alone, a head
    on its features does not, nor does what makes views. Hooks on all modules: a teacher may be kept in a plain list.
    """
    count = Forwards()
    within: list[list[Any]] = []  # networks that are being called, each with whether it has called one in turn

    def begin(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and _are_images(inputs[0]) and _holds_anything(module):
            within.append([module, False])

    def end(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not within or within[-1][0] is not module:
            return
        _, called_another = within.pop()
        made = [tensor for tensor in tree_leaves(output) if isinstance(tensor, torch.Tensor)]
        if not made or all(map(_are_images, made)) or any(tensor.requires_grad for tensor in made):
            return
        if within:
            within[-1][1] = True
        else:
            count.rows += len(inputs[0])
        if not called_another:
            count.most += len(inputs[0])

    with register_module_forward_pre_hook(begin), register_module_forward_hook(end, always_call=True):
        yield count


def _are_images(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.ndim == 4 and given.shape[1] in (1, 3)


def _holds_anything(module: nn.Module) -> bool:
    return next(chain(module.parameters(), module.buffers()), None) is not None
