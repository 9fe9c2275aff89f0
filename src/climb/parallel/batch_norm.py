"""Batch norm whose statistics cover the rows of all processes, on any device (torch's SyncBatchNorm refuses CPUs)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from climb.parallel.group import Group


class GlobalBatchNorm(_BatchNorm):
    """An `nn.BatchNorm1d` or `nn.BatchNorm2d` over the union of all processes' rows.

    One exchange of ``2 C + 1`` numbers forward and one of ``2 C`` backward for C channels. A process may have no row
    at all. In eval mode it exchanges nothing, so that one process can evaluate while the others wait.

    Args:
        norm: the batch norm to be; its parameters and statistics are taken over, not copied.
        group: the processes.
    """

    def __init__(self, norm: _BatchNorm, group: Group) -> None:
        super().__init__(norm.num_features)
        vars(self).update(vars(norm))
        self._group = group

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Rows, then channels; `nn.BatchNorm1d` and `nn.BatchNorm2d` differ in this check alone."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Rows (n, C) or (n, C, H, W), normalised per channel."""
        if not self.training:
            return super().forward(input)
        output, mean, variance, count = _Normalise.apply(input, self.weight, self.bias, self.eps, self._group)  # type: ignore[no-untyped-call]
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            assert self.momentum is not None  # our networks average at a fixed rate
            unbiased = variance * (count / (count - 1).clamp(min=1))
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        normalised: torch.Tensor = output
        return normalised


class _Normalise(torch.autograd.Function):
    """The differentiable part. With x^ = (x - m) / s over all N values of a channel, and g the gradient of x^::

    dL/dx = (g - mean g - x^ mean(g x^)) / s        the means over all processes
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float, group: Group
    ) -> tuple[torch.Tensor, ...]:
        wide = x if x.dtype == torch.float64 else x.float()  # statistics of half precision would be its own error
        dims = [dim for dim in range(x.ndim) if dim != 1]
        own = x.numel() // x.shape[1]
        own_mean = wide.mean(dims) if own else wide.new_zeros(x.shape[1])
        own_square = (wide - _wide(own_mean, x)).square().sum(dims)
        packed = group.gather(torch.cat([own_mean, own_square, own_mean.new_full((1,), float(own))]))
        means, squares, counts = packed[:, : x.shape[1]], packed[:, x.shape[1] : -1], packed[:, -1:]
        # Of means and squared deviations, not of sums of squares, which would cancel.
        count = counts.sum()
        mean = (counts * means).sum(0) / count
        variance = (squares + counts * (means - mean).square()).sum(0) / count
        scale = (variance + eps).rsqrt()
        normalised = (wide - _wide(mean, x)) * _wide(scale, x)
        ctx.save_for_backward(x, weight, mean, scale, count)  # x^ itself would be rounded to half precision
        ctx.group, ctx.dims = group, dims
        ctx.mark_non_differentiable(mean, variance, count)
        output = normalised if weight is None or bias is None else normalised * _wide(weight, x) + _wide(bias, x)
        return output.to(x.dtype), mean, variance, count

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, mean, scale, count = ctx.saved_tensors
        wide, hat = gradient.to(scale.dtype), (x.to(scale.dtype) - _wide(mean, x)) * _wide(scale, x)
        of_bias, of_weight = wide.sum(ctx.dims), (wide * hat).sum(ctx.dims)
        # This process's share of the parameters' gradients is added to the others' later, with all the rest.
        means = ctx.group.all_reduce(torch.stack([of_bias, of_weight])) / count
        inner = wide - _wide(means[0], wide) - hat * _wide(means[1], wide)
        of_input = inner * _wide(scale if weight is None else scale * weight, wide)
        shares = (None, None) if weight is None else (of_weight.to(weight.dtype), of_bias.to(weight.dtype))
        return of_input.to(gradient.dtype), *shares, None, None


def _wide(channels: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """(C,) so that it meets the second dimension of ``like``."""
    return channels.view(1, -1, *([1] * (like.ndim - 2)))


def share_statistics(module: nn.Module, group: Group) -> None:
    """Replace every batch norm inside ``module`` by one over all processes' rows, in place; none for one process."""
    if group.size == 1:
        return
    for name, child in list(module.named_children()):
        if isinstance(child, _BatchNorm):
            setattr(module, name, GlobalBatchNorm(child, group))
        else:
            share_statistics(child, group)
