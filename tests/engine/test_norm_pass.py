"""Compiled networks whose batch norms are one operator are the same networks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from climb.engine.norms import norm, norm_backward
from climb.nets.micro import micronet
from climb.nets.resnet import BasicBlock, BottleneckBlock

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32:UserWarning")

Options = dict[str, Any] | None
Forward = Callable[[nn.BatchNorm2d, Tensor], Tensor]


class Sharing(nn.Module):
    """A batch norm used twice in a sum: its running statistics move twice, in this order."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(5)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = (self.norm(x * 2 + 1) + self.norm(x - 3)).relu()
        return total


def taken(network: nn.Module | Callable[[Tensor], Tensor], x: Tensor) -> list[tuple[bool, bool]]:
    """Of each operator that the pass puts into the graph: whether something is added, and whether it has a relu."""
    from climb.engine.norm_pass import norms_in_few_kernels

    seen: list[tuple[bool, bool]] = []

    def backend(module: fx.GraphModule, _: object) -> Callable[..., object]:
        norms_in_few_kernels(module.graph)
        module.graph.lint()
        module.recompile()
        for node in module.graph.find_nodes(op="call_function", target=norm._opoverload):
            seen.append((node.args[3] is not None, bool(node.args[4])))
        return module.forward

    torch._dynamo.reset()
    torch.compile(network, dynamic=False, backend=backend)(x)
    return seen


def trained(network: nn.Module, x: Tensor, precision: torch.dtype, *, options: Options = None) -> dict[str, Tensor]:
    """Loss, gradients and buffers after one backward; with ``options``, compiled with them."""

    def loss_of(given: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):
            loss: Tensor = network(given).float().square().mean()
        return loss

    x = x.clone().requires_grad_()
    torch._dynamo.reset()
    loss = loss_of(x) if options is None else torch.compile(loss_of, dynamic=False, options=options)(x)  # type: ignore[arg-type]
    loss.backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    held = {"loss": loss.detach(), "images": x.grad, **dict(network.named_buffers())}
    return {**held, **{name: p.grad for name, p in network.named_parameters() if p.grad is not None}}


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize(
    ("make", "shape", "precision"),
    [
        (lambda: nn.Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 16, 2)), (2, 8, 8, 8), torch.float32),
        (lambda: nn.Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 16, 2)), (2, 8, 8, 8), torch.bfloat16),
        (Sharing, (2, 5, 4, 4), torch.float32),
    ],
)
def test_a_compiled_network_stays_the_same(
    make: Callable[[], nn.Module], shape: tuple[int, ...], precision: torch.dtype
) -> None:
    from torch._inductor.utils import fresh_inductor_cache

    from climb.engine.norm_pass import OPTIONS, NormsInFewKernels, SumsIntoNorms

    count = sums = 0

    class CountingSums(SumsIntoNorms):
        def __call__(self, graph: fx.Graph) -> None:
            nonlocal sums
            super().__call__(graph)
            given = graph.find_nodes(op="call_function", target=norm_backward._opoverload)
            sums += sum(len(node.args) == 10 for node in given)

    class Counting(NormsInFewKernels):
        def __call__(self, graph: fx.Graph) -> None:
            nonlocal count
            super().__call__(graph)
            count += len(graph.find_nodes(op="call_function", target=norm._opoverload))

    torch.manual_seed(0)
    network = make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    quick = copy.deepcopy(network)
    x = torch.randn(shape, dtype=precision).contiguous(memory_format=torch.channels_last)
    with fresh_inductor_cache():
        counting = {"pre_grad_custom_pass": Counting(), "post_grad_custom_pre_pass": CountingSums()}
        assert counting.keys() <= OPTIONS.keys()
        ours = trained(quick, x, precision, options={**OPTIONS, **counting})
    theirs = trained(network, x, precision)
    assert count == sum(isinstance(module, nn.BatchNorm2d) for module in network.modules()) + isinstance(
        network, Sharing
    )
    assert sums == (0 if isinstance(network, Sharing) else 1)  # what the first block gives, the second uses twice
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        # In bfloat16 the three are rounded once here and three times there.
        tolerance = 1e-5 if precision is torch.float32 or value.dtype is torch.int64 else 4e-2
        assert (ours[name] - value).double().norm() <= tolerance * (value.double().norm() + 1e-3), name


def test_relus_and_sums_go_with_the_batch_norm_before_them() -> None:
    x = torch.randn(2, 4, 8, 8)
    assert taken(BasicBlock(4, 4, 1), x) == [(False, True), (True, True)]
    # Of the two batch norms that are added, the branch's takes the other's in, which comes before it by then.
    assert taken(BasicBlock(4, 6, 2), x) == [(False, True), (False, False), (True, True)]
    assert taken(BottleneckBlock(4, 1, 1), x) == [(False, True), (False, True), (True, True)]
    images = torch.randn(2, 3, 16, 16)
    assert taken(micronet(generator=torch.Generator().manual_seed(0)), images) == [(False, True)] * 4


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (lambda layer, x: layer(x), [(False, False)]),
        (lambda layer, x: layer(x).relu(), [(False, True)]),
        (lambda layer, x: torch.relu(layer(x * 2)), [(False, True)]),
        (lambda layer, x: functional.relu(torch.add(x, layer(x * 2))), [(True, True)]),
        (lambda layer, x: functional.relu(layer(x * 2) + x, inplace=True), [(True, True)]),
        (lambda layer, x: layer(x * 2) + x, [(False, False)]),  # no relu
        (lambda layer, x: functional.relu(torch.add(layer(x * 2), x, alpha=2)), [(False, False)]),
        (lambda layer, x: functional.relu(layer(x * 2) + x[:1]), [(False, False)]),  # of another shape
        (lambda layer, x: functional.relu(layer(x * 2) + 1), [(False, False)]),
        (lambda layer, x: functional.relu(layer(x) + x), [(False, False)]),  # x may be known to others
    ],
)
def test_what_is_taken_in_is_what_the_operator_can_do(forward: Forward, expected: list[tuple[bool, bool]]) -> None:
    layer, x = nn.BatchNorm2d(4), torch.randn(2, 4, 8, 8)
    assert taken(lambda given: forward(layer, given), x) == expected


def test_a_value_that_is_used_twice_is_not_taken_in() -> None:
    def forward(x: Tensor) -> Tensor:
        value = layer(x)
        return functional.relu(value) + value

    layer = nn.BatchNorm2d(4)
    assert taken(forward, torch.randn(2, 4, 8, 8)) == [(False, False)]


def test_a_norm_whose_running_statistics_are_read_in_the_same_graph_stays_as_it_is() -> None:
    """They are moved beside the chain of kernels, and who reads them there would not wait."""
    layer = nn.BatchNorm2d(5)

    def trained_and_evaluated(x: Tensor) -> Tensor:
        trained: Tensor = layer(x)
        assert layer.running_mean is not None
        return trained + functional.batch_norm(x, layer.running_mean, layer.running_var, layer.weight, layer.bias)

    assert taken(trained_and_evaluated, torch.randn(2, 5, 4, 4)) == []


def test_what_is_done_without_gradients_stays_so() -> None:
    def forward(x: Tensor) -> Tensor:
        with torch.no_grad():
            value = layer(x * 2)
        return functional.relu(value + x)

    layer = nn.BatchNorm2d(4)
    assert taken(forward, torch.randn(2, 4, 8, 8, requires_grad=True)) == [(False, False)]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.BatchNorm2d(4).eval(), (2, 4, 3, 3)),
        (nn.BatchNorm2d(4, affine=False), (2, 4, 3, 3)),
        (nn.BatchNorm2d(4, track_running_stats=False), (2, 4, 3, 3)),
        (nn.BatchNorm2d(4).double(), (2, 4, 3, 3)),
        (nn.BatchNorm1d(4), (6, 4)),
        (nn.GroupNorm(2, 4), (2, 4, 3, 3)),
    ],
)
def test_any_other_norm_stays_as_it_is(layer: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=next(layer.parameters(), torch.zeros(())).dtype)
    assert taken(lambda given: functional.relu(layer(given)), x) == []
