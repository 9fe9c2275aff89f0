"""For steps of few images: batch norm, what is added to it and the relu after it as one operator of one or two kernels.

Torch's compiler makes three or four kernels of a batch norm, one waiting for the other, and as many of its backward.
With few images each is over at once, and a step takes as long as its longest chain of kernels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from climb.engine.second_stream import BESIDE

OVER = (0, 2, 3)
"""Dimensions of (n, c, h, w) that statistics are taken over."""

MOST_NUMBERS = 2**31
"""Tensors that have fewer go to the kernels, which count in 32 bits."""


@torch.library.custom_op("climb::norm", mutates_args=())
def norm(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, relu: bool, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm of (n, c, h, w) by this batch's own statistics, plus ``residual``, then relu if asked; rounded once.

    ``weight`` and ``bias`` are float32 (c,); ``residual`` is as ``x`` is, and so is the result. Arithmetic is in
    float32, or float64 where ``x`` is.

    Returns:
        The result; and (c,) the mean and the biased variance of ``x``, for running averages. No gradient flows through
        these two.
    """
    if not _for_kernels(x):
        return _reference_norm(x, weight, bias, residual, relu, eps)
    from climb.engine import norm_kernels

    with torch.cuda.device(x.device):
        return norm_kernels.norm(x, weight, bias, None if residual is None else _rows(residual), relu, eps)


@torch.library.custom_op("climb::norm_backward", mutates_args=())
def norm_backward(
    outgoing: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    mean: Tensor,
    variance: Tensor,
    relu: bool,
    residual: bool,
    eps: float,
    also: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of `norm` for x, weight, bias and residual (empty without one), given that of its result ``y``.

    ``also`` is a second gradient of the result, where two have used it: the two are added before anything else.
    ``y`` is read only for its relu; without one, any tensor may stand in for it.
    """
    if not _for_kernels(x):
        return _reference_norm_backward(outgoing, x, y, weight, mean, variance, relu, residual, eps, also)
    from climb.engine import norm_kernels

    with torch.cuda.device(x.device):
        both = _rows(outgoing), None if also is None else _rows(also)
        return norm_kernels.norm_backward(*both, x, y, weight, mean, variance, relu, residual, eps)


@torch.library.custom_op("climb::move_running", mutates_args=("running", "counts"))
def move_running(
    running: list[Tensor], batch: list[Tensor], factors: list[float], momentum: float, counts: list[Tensor]
) -> None:
    """Move running statistics towards those of a batch, each times its factor, and count the batch.

    Of all norms of a network at once, and beside the chain of kernels: on a GPU it is done only after `BESIDE.wait`.
    """

    def move() -> None:
        torch._foreach_lerp_(running, torch._foreach_mul(batch, factors), momentum)
        if counts:
            torch._foreach_add_(counts, 1)

    BESIDE.start(move, *batch)


@move_running.register_fake
def _(running: list[Tensor], batch: list[Tensor], factors: list[float], momentum: float, counts: list[Tensor]) -> None:
    return None


@norm.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, relu: bool, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    mean, variance = (x.new_empty(x.shape[1], dtype=_wide(x)) for _ in range(2))
    return torch.empty_like(x), mean, variance


@norm_backward.register_fake
def _(
    outgoing: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    mean: Tensor,
    variance: Tensor,
    relu: bool,
    residual: bool,
    eps: float,
    also: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_residual = torch.empty_like(x) if residual else x.new_empty(0)
    return torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight), of_residual


def _keep(
    ctx: Any,
    inputs: tuple[Tensor, Tensor, Tensor, Tensor | None, bool, float],
    output: tuple[Tensor, Tensor, Tensor],
) -> None:
    x, weight, _, residual, relu, eps = inputs
    y, mean, variance = output
    ctx.mark_non_differentiable(mean, variance)
    ctx.save_for_backward(x, y if relu else x, weight, mean, variance)  # a result without relu may be overwritten
    ctx.rest = (relu, residual is not None, eps)


def _gradients(ctx: Any, outgoing: Tensor, *of_statistics: object) -> tuple[Tensor | None, ...]:
    x, y, weight, mean, variance = ctx.saved_tensors
    relu, residual, eps = ctx.rest
    *those_of_all, of_residual = norm_backward(outgoing, x, y, weight, mean, variance, relu, residual, eps)
    return (*those_of_all, of_residual if residual else None, None, None)


norm.register_autograd(_gradients, setup_context=_keep)


def _reference_norm(
    x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, relu: bool, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`norm` by torch's own operations, on any device and in any layout; what the kernels are held to."""
    variance, mean = torch.var_mean(x.to(_wide(x)), OVER, correction=0)
    value = _centred(x, mean) * _by_channel(torch.rsqrt(variance + eps) * weight) + _by_channel(bias)
    if residual is not None:
        value = value + residual
    if relu:
        value = value.relu()
    return torch.empty_like(x).copy_(value), mean, variance


def _reference_norm_backward(
    outgoing: Tensor,
    x: Tensor,
    y: Tensor,
    weight: Tensor,
    mean: Tensor,
    variance: Tensor,
    relu: bool,
    residual: bool,
    eps: float,
    also: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`norm_backward` by torch's own operations."""
    gradient = outgoing.to(_wide(x))
    if also is not None:
        gradient = gradient + also
    if relu:
        gradient = torch.where(y <= 0, 0, gradient)  # not a number stays so
    scale = torch.rsqrt(variance + eps)
    normal = _centred(x, mean) * _by_channel(scale)
    of_bias, of_weight = gradient.sum(OVER), (gradient * normal).sum(OVER)
    rows = x.numel() // x.shape[1]
    through_statistics = (_by_channel(of_bias) + normal * _by_channel(of_weight)) / rows
    of_x = (gradient - through_statistics) * _by_channel(scale * weight)
    of_residual = torch.empty_like(x).copy_(gradient) if residual else x.new_empty(0)
    return torch.empty_like(x).copy_(of_x), of_weight.to(weight.dtype), of_bias.to(weight.dtype), of_residual


def _for_kernels(x: Tensor) -> bool:
    return (
        x.is_cuda
        and x.dtype is not torch.float64
        and 0 < x.numel() < MOST_NUMBERS
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _rows(x: Tensor) -> Tensor:
    """In channels-last, where (n, c, h, w) lies as rows of channels."""
    return x.contiguous(memory_format=torch.channels_last)


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _by_channel(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1)


def _centred(x: Tensor, mean: Tensor) -> Tensor:
    return x.to(_wide(x)) - _by_channel(mean)
