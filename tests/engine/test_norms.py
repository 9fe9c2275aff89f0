"""Batch norm, sum and relu as one operator: what torch makes of the three, and its gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from climb.engine import norms
from climb.engine.norms import move_running, norm, norm_backward

EPS = 1e-5
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 2e-2}
SHAPES = [(20, 64, 32, 32), (20, 128, 16, 16), (20, 256, 8, 8), (20, 512, 4, 4), (64, 64, 32, 32), (3, 13, 5, 7)]


def drawn(
    shape: tuple[int, ...], dtype: torch.dtype, *, residual: bool, device: str = "cpu"
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]:
    """Input, weight, bias, residual and outgoing gradient; the input's mean is far from zero, as few would have it."""
    generator = torch.Generator().manual_seed(0)

    def image() -> Tensor:
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        return values.to(device=device, dtype=dtype).contiguous(memory_format=torch.channels_last)

    wide = torch.promote_types(dtype, torch.float32)
    x = image() * 2 + 10
    weight, bias = (torch.randn(shape[1], generator=generator).to(device=device, dtype=wide) for _ in range(2))
    return x, weight, bias, image() if residual else None, image()


def plain(x: Tensor, weight: Tensor, bias: Tensor, residual: Tensor | None, relu: bool) -> Tensor:
    """Torch's own, in float32 throughout."""
    wide = weight.dtype
    value = functional.batch_norm(x.to(wide), None, None, weight, bias, training=True, eps=EPS)
    if residual is not None:
        value = value + residual.to(wide)
    return (value.relu() if relu else value).to(x.dtype)


def close(ours: Tensor, theirs: Tensor, dtype: torch.dtype) -> None:
    """By the largest number of the tensor: sums over rows cancel."""
    assert ours.dtype == theirs.dtype
    assert (ours.double() - theirs.double()).abs().max() <= TOLERANCE[dtype] * theirs.double().abs().max()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_it_is_torchs_batch_norm_sum_and_relu(residual: bool, relu: bool, dtype: torch.dtype) -> None:
    *inputs, outgoing = drawn((3, 13, 5, 7), dtype, residual=residual)
    leaves = [leaf.requires_grad_() for leaf in inputs if leaf is not None]
    y, mean, variance = norm(*inputs, relu, EPS)
    ours = torch.autograd.grad(y, leaves, outgoing)
    expected = plain(*inputs, relu)
    theirs = torch.autograd.grad(expected, leaves, outgoing)
    assert y.stride() == inputs[0].stride()
    close(y, expected, dtype)
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, dtype)
    assert not mean.requires_grad
    assert not variance.requires_grad
    rows = inputs[0].detach().double().permute(1, 0, 2, 3).flatten(1)
    close(mean.double(), rows.mean(1), dtype)
    close(variance.double(), rows.var(1, correction=0), dtype)


@pytest.mark.parametrize("relu", [False, True])
def test_its_gradients_are_those_of_its_values(relu: bool) -> None:
    *inputs, _ = drawn((2, 3, 2, 3), torch.float64, residual=True)
    leaves = [leaf.requires_grad_() for leaf in inputs if leaf is not None]
    torch.autograd.gradcheck(lambda *given: norm(*given, relu, EPS)[0], leaves)


def test_a_second_gradient_is_added_to_the_first() -> None:
    x, weight, bias, residual, outgoing = drawn((3, 5, 4, 4), torch.float32, residual=True)
    y, mean, variance = norm(x, weight, bias, residual, True, EPS)
    also = outgoing.flip(0) * 3
    one = norm_backward(outgoing, x, y, weight, mean, variance, True, True, EPS, also)
    other = norm_backward(outgoing + also, x, y, weight, mean, variance, True, True, EPS)
    torch.testing.assert_close(one, other)


def test_a_result_without_relu_may_be_overwritten_before_the_backward() -> None:
    *inputs, outgoing = drawn((3, 5, 4, 4), torch.float32, residual=False)
    x = inputs[0].requires_grad_()
    y, _, _ = norm(*inputs, False, EPS)
    (ours,) = torch.autograd.grad(y.relu_(), x, outgoing)
    (theirs,) = torch.autograd.grad(plain(*inputs, True), x, outgoing)
    close(ours, theirs, torch.float32)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_torch_finds_the_operators_well_formed(residual: bool, layout: torch.memory_format) -> None:
    """Also what they say of shapes and strides, in layouts that are no kernel's."""
    x, weight, bias, addend, outgoing = (
        None if tensor is None else tensor.contiguous(memory_format=layout) if tensor.dim() == 4 else tensor
        for tensor in drawn((2, 3, 4, 5), torch.float32, residual=residual)
    )
    assert x is not None
    assert weight is not None
    assert bias is not None
    y, mean, variance = norm(x, weight, bias, addend, True, EPS)
    leaves = [None if leaf is None else leaf.clone().requires_grad_() for leaf in (x, weight, bias, addend)]
    torch.library.opcheck(norm, (*leaves, True, EPS))
    torch.library.opcheck(norm_backward, (outgoing, x, y, weight, mean, variance, True, residual, EPS, outgoing))
    torch.library.opcheck(norm_backward, (outgoing, x, y, weight, mean, variance, False, residual, EPS))


def test_running_statistics_move_towards_a_batch_and_batches_are_counted() -> None:
    running, batch = [torch.tensor([1.0, 2.0]), torch.tensor([4.0])], [torch.tensor([3.0, 0.0]), torch.tensor([2.0])]
    counts = [torch.tensor(0), torch.tensor(6)]
    move_running(running, batch, [1.0, 1.5], 0.1, counts)
    torch.testing.assert_close(running, [torch.tensor([1.2, 1.8]), torch.tensor([3.9])])
    assert counts == [torch.tensor(1), torch.tensor(7)]
    torch.library.opcheck(move_running, (running, batch, [1.0, 1.5], 0.1, counts))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("residual", "relu", "twice"), [(True, True, False), (False, True, True), (False, False, False)]
)
def test_the_kernels_do_what_the_reference_does(
    shape: tuple[int, ...], residual: bool, relu: bool, twice: bool, dtype: torch.dtype
) -> None:
    *inputs, outgoing = drawn(shape, dtype, residual=residual, device="cuda")
    x, weight = inputs[0], inputs[1]
    assert norms._for_kernels(x)
    ours = norm(*inputs, relu, EPS)
    theirs = norms._reference_norm(*inputs, relu, EPS)
    y, mean, variance = theirs
    also = outgoing.flip(0) if twice else None
    rest = (x, y, weight, mean, variance, relu, residual, EPS, also)
    ours_back = norm_backward(outgoing.contiguous(), *rest)  # which may come in any layout
    theirs_back = norms._reference_norm_backward(outgoing, *rest)
    for one, other in zip((*ours, *ours_back), (*theirs, *theirs_back), strict=True):
        assert one.stride() == other.stride()
        if other.numel():
            close(one, other, dtype)
