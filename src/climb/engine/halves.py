"""For steps of few images: weights that are kept in bf16 beside their float32, not cast anew in every step.

Under autocast each step casts every weight of a convolution or linear layer before its use, and the gradient back,
however few images there are. Here a network computes with weights that are bf16 already; the float32 ones stay the
truth, and who changes them brings their halves up to date.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Halves:
    """A network's twin that computes with bf16 weights where autocast would cast them, and shares all else with it.

    >>> network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    >>> halves = Halves(network)
    >>> halves.network[0].weight.dtype, halves.network[1].weight is network[1].weight
    (torch.bfloat16, True)
    """

    network: nn.Module
    """The twin, in the mode that the network was in when last looked at."""

    def __init__(self, network: nn.Module) -> None:
        self._whole_network = network
        self.pairs = {name: (whole, _half(whole)) for name, whole in _cast_by_autocast(network).items()}
        shared = [*network.parameters(), *network.buffers()]
        known = {id(tensor): tensor for tensor in shared} | {id(whole): half for whole, half in self.pairs.values()}
        self.network = copy.deepcopy(network, known)  # what is known is taken, not copied

    @torch.no_grad()
    def refresh(self) -> None:
        """Follow the network: somebody may have changed its weights, its mode, or what is trained of it."""
        for module, twin in zip(self._whole_network.modules(), self.network.modules(), strict=True):
            twin.training = module.training
        for whole, half in self.pairs.values():
            half.requires_grad_(whole.requires_grad)
        torch._foreach_copy_([half for _, half in self.pairs.values()], [whole for whole, _ in self.pairs.values()])


def is_known(network: nn.Module) -> bool:
    """Whether it is known how the network uses its weights: all its modules are torch's or ours, and nobody listens.

    Somebody's own module, or a hook, may do other things with a layer's weight than calling the layer.
    """
    modules = list(network.modules())
    known = all(type(module).__module__.startswith(("torch.nn.modules.", "climb.nets.")) for module in modules)
    return known and not any(getattr(module, hooks) for module in modules for hooks in HOOKS)


def _cast_by_autocast(network: nn.Module) -> dict[str, nn.Parameter]:
    """By name: what belongs to convolutions and linear layers."""
    layers = [part for part in network.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    cast = {id(weight) for part in layers for weight in part.parameters(recurse=False)}
    return {name: weight for name, weight in network.named_parameters() if id(weight) in cast}  # a tied one once


def _half(whole: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(whole.detach().to(torch.bfloat16), requires_grad=whole.requires_grad)
