"""A network asked about several batches at once that answers as if they had come one after another.

What an image gets depends on its batch by way of batch norms alone. With these kept to one batch at a time, all others
of a network's layers may have them all together: large ones in place of many small ones.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from climb.engine.halves import is_known

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
EACH_BY_ITSELF = (
    *(nn.Conv2d, nn.Linear, nn.LayerNorm, nn.ReLU, nn.GELU, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d),
    *(nn.Flatten, nn.Identity, nn.Sequential, nn.ModuleList),
)
"""Torch's modules that are known to treat images one by one, and to draw nothing; so do all in `climb.nets`."""


class NormByGroups(nn.Module):
    """A batch norm for inputs (groups * n, c, ...), by the statistics of each group; the running ones move by all.

    They move as if the groups had come one after another.
    """

    def __init__(self, norm: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self.norm = norm
        self.groups = 1

    def forward(self, inputs: Tensor) -> Tensor:
        """As many numbers as there were."""
        norm = self.norm
        if not norm.training:
            outputs: Tensor = norm(inputs)
            return outputs
        x = _split(inputs, self.groups).to(torch.promote_types(inputs.dtype, torch.float32))
        over = [1, *range(3, x.dim())]
        variance, mean = torch.var_mean(x, over, correction=0, keepdim=True)
        of_each_channel = (-1, *[1] * (x.dim() - 3))
        x = (x - mean) * torch.rsqrt(variance + norm.eps)
        if norm.weight is not None:
            x = x * norm.weight.view(of_each_channel) + norm.bias.view(of_each_channel)
        values = x.numel() // mean.numel()  # of a channel in a group
        self._move(norm.running_mean, mean.flatten(1))
        self._move(norm.running_var, variance.flatten(1) * (values / (values - 1)))
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.add_(self.groups)
        return x.flatten(0, 1).to(inputs.dtype)

    @torch.no_grad()
    def _move(self, running: Tensor | None, statistics: Tensor) -> None:
        """Towards each of the statistics (groups, c), in turn: the last counts most."""
        momentum = self.norm.momentum
        assert running is not None
        assert momentum is not None
        later = torch.arange(self.groups - 1, -1, -1, device=running.device)
        shares = momentum * (1 - momentum) ** later
        running.mul_((1 - momentum) ** self.groups).add_((shares[:, None] * statistics).sum(0))


class ByGroups:
    """A network for inputs (groups, n, ...): each of its outputs is (groups, n, ...), as of each group by itself.

    It computes with the network's own layers and moves its running statistics.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    >>> together = ByGroups(network)(torch.arange(24.0).view(3, 4, 2).cos())
    >>> apart = torch.stack([network(group) for group in torch.arange(24.0).view(3, 4, 2).cos()])
    >>> torch.allclose(together, apart, atol=1e-6)
    True
    """

    def __init__(self, network: nn.Module) -> None:
        leaves = [module for module in network.modules() if not list(module.children())]
        norms = {id(leaf): NormByGroups(leaf) for leaf in leaves if isinstance(leaf, nn.modules.batchnorm._BatchNorm)}
        shared = [*network.parameters(), *network.buffers(), *leaves]
        known: dict[int, Any] = {id(one): one for one in shared} | norms
        self._norms = list(norms.values())
        self._network = copy.deepcopy(network, known)  # what is known is taken, not copied

    def __call__(self, inputs: Tensor) -> Any:
        """The network's output, or outputs, of all groups."""
        for norm in self._norms:
            norm.groups = len(inputs)
        outputs = self._network(inputs.flatten(0, 1))
        if isinstance(outputs, Tensor):
            return _split(outputs, len(inputs))
        return tuple(_split(output, len(inputs)) for output in outputs)


def can_go_by_groups(network: nn.Module) -> bool:
    """Whether it is known that images of a batch meet in batch norms alone, each used once, and nothing is drawn."""
    modules = [module for _, module in network.named_modules(remove_duplicate=False)]
    norms = [module for module in modules if type(module) in NORMS]
    usual = all(norm.track_running_stats and norm.momentum is not None for norm in norms)
    others = [module for module in modules if type(module) not in NORMS]
    apart = all(type(one) in EACH_BY_ITSELF or type(one).__module__.startswith("climb.nets.") for one in others)
    return usual and apart and len(set(norms)) == len(norms) and is_known(network)


def _split(rows: Tensor, groups: int) -> Tensor:
    """(groups * n, ...) to (groups, n, ...)."""
    return rows.view(groups, rows.shape[0] // groups, *rows.shape[1:])
