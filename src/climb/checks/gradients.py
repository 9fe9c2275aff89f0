"""Where the gradient of a loss goes: to parameters that are trained, and to the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from climb.nets import Encoded
from climb.promise import promise


class Leaves:
    """Looks for what losses ask a gradient of and the optimiser does not hold: a head in a plain list, say.

    A tensor that is made for one loss alone (the images of a gradient penalty) is nobody's parameter. One that is
    there again in a later loss is.

    Args:
        held: the parameters that the optimiser steps.
    """

    def __init__(self, held: Iterable[nn.Parameter]) -> None:
        self._held = {id(parameter) for parameter in held}
        self._strangers: dict[int, torch.Tensor] = {}  # the tensors too, so that no other one gets their id

    def check(self, room: str, loss: torch.Tensor) -> None:
        """Refuse a loss of that socket if what it is made of is neither trained nor frozen."""
        for leaf in _leaves(loss):
            if id(leaf) in self._held:
                continue
            kept = isinstance(leaf, nn.Parameter) or id(leaf) in self._strangers
            promise(
                not kept,
                f"the {room}'s loss has a gradient for a tensor of shape {tuple(leaf.shape)} that the optimiser does "
                "not hold: neither is it trained nor saved. Make it a parameter, or its module an attribute (not in a "
                "plain list), when the part is made; or freeze it",
            )
            self._strangers[id(leaf)] = leaf


def _leaves(loss: torch.Tensor) -> Iterator[torch.Tensor]:
    """What the gradient of a loss ends at."""
    waiting: list[Any] = [loss.grad_fn]
    seen: set[Any] = {None}
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        waiting += [function for function, _ in node.next_functions]


def reaches(loss: torch.Tensor, encoded: Any, network: nn.Module) -> bool:
    """Whether a loss has a gradient other than zero for what the network made of a batch, or for its parameters.

    Parameters: an alignment may hold weights, not embeddings, to those of the past.
    """
    if not loss.requires_grad:
        return False
    made = [encoded.embeddings, encoded.features] if isinstance(encoded, Encoded) else []
    for wanted in (made, list(network.parameters())):  # the first is soon done, and nearly always enough
        wanted = [tensor for tensor in wanted if tensor.requires_grad]
        if not wanted:
            continue
        found = torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True)
        if any(gradient is not None and bool(gradient.any()) for gradient in found):
            return True
    return False
