"""Small steps: weight gradients that are computed beside the backward chain are the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest
import torch
from torch import nn

from climb.config import LearnerConfig
from climb.engine import Engine, EngineKind, weight_gradients
from climb.engine.compiled import compiled
from climb.engine.weight_gradients import FEW_ROWS, weight_gradient
from climb.learner import build_engine
from climb.methods import METHODS, build_parts, choose_method
from climb.nets.resnet import BasicBlock
from climb.presets import apply_preset
from climb.workshop import Workshop

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32:UserWarning")

Forward = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def once(convolution: nn.Module, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = convolution(x.relu())
    return result


def twice(convolution: nn.Module, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = convolution(convolution(x).relu())
    return result


def torn(convolution: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Twice, with something in between that cannot be traced: the gradient leaves two graphs, and is a sum."""
    half = convolution(x).relu()
    torch._dynamo.graph_break()
    result: torch.Tensor = convolution(half)
    return result


def gradients(forward: Forward, *, beside: bool, precision: torch.dtype) -> tuple[list[torch.Tensor], int]:
    """Of a convolution's weight and its input, compiled; and how many weight gradients were moved."""
    from torch._inductor.utils import fresh_inductor_cache

    from climb.engine import weight_gradient_pass

    moved = 0
    made: list[int] = []
    compute = weight_gradients._gradient

    def noted(*arguments: object) -> torch.Tensor:
        gradient = compute(*arguments)
        made.append(gradient.data_ptr())
        return gradient

    class Counting(weight_gradient_pass.WeightGradientsBeside):
        def __call__(self, graph: torch.fx.Graph) -> None:
            nonlocal moved
            super().__call__(graph)
            moved += len(graph.find_nodes(op="call_function", target=weight_gradient._opoverload))

    def loss(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):
            return forward(convolution, x).float().square().mean()

    generator = torch.Generator().manual_seed(0)
    convolution = nn.Conv2d(8, 8, 3, padding=1, bias=False)
    convolution.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with torch.no_grad():
        convolution.weight.copy_(torch.randn(convolution.weight.shape, generator=generator))
    x = torch.randn(2, 8, 6, 6, generator=generator, requires_grad=True)
    options = {**weight_gradient_pass.OPTIONS, "post_grad_custom_post_pass": Counting()} if beside else None
    takers = [weight_gradients.Taker(convolution.weight, lambda gradient: None)]
    weight_gradients.hand_over(takers)  # whose interest in a gradient must not make torch copy it
    with fresh_inductor_cache(), mock.patch.object(weight_gradients, "_gradient", noted):
        compiled(loss, options)(x).backward()  # type: ignore[no-untyped-call]
    assert convolution.weight.grad is not None
    assert x.grad is not None
    # Taken as it is: on a GPU, a copy would be made on the first stream, before anyone has waited for the second. Torch
    # makes one where the layouts differ; `Parts.prepare` sees to it that there they do not.
    assert made == [convolution.weight.grad.data_ptr()] * moved
    return [convolution.weight.grad, x.grad], moved


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # torch's own, where a graph breaks
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("forward", "expected"), [(once, 1), (twice, 0), (torn, 0)])
def test_a_gradient_that_leaves_the_graph_is_moved_and_stays_the_same(
    forward: Forward, expected: int, precision: torch.dtype
) -> None:
    """One that is added to another within the graph is not moved: nobody would wait for it there."""
    plain, _ = gradients(forward, beside=False, precision=precision)
    moved, count = gradients(forward, beside=True, precision=precision)
    assert count == expected
    for one, other in zip(plain, moved, strict=True):
        assert one.dtype == other.dtype == torch.float32
        torch.testing.assert_close(other, one, rtol=0, atol=0)


@pytest.mark.slow(seconds=25)
def test_weight_gradients_are_started_in_the_order_of_the_backward() -> None:
    """The last and largest first. Left to the end, they would have nothing to be beside."""
    from torch._inductor.utils import fresh_inductor_cache

    from climb.engine.weight_gradient_pass import OPTIONS

    started: list[int] = []
    compute = weight_gradients._gradient

    def noted(*arguments: object) -> torch.Tensor:
        gradient = compute(*arguments)
        started.append(gradient.shape[0])
        return gradient

    def loss(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = network(x).square().mean()
        return result

    network = nn.Sequential(BasicBlock(16, 16, 1), BasicBlock(16, 64, 2), BasicBlock(64, 256, 2))
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs = torch.randn(4, 16, 8, 8, requires_grad=True)
    with fresh_inductor_cache(), mock.patch.object(weight_gradients, "_gradient", noted):
        torch.compile(loss, dynamic=False, options=dict(OPTIONS))(inputs).backward()  # type: ignore[no-untyped-call]
    assert started == [256] * 3 + [64] * 3 + [16] * 2


def test_small_steps_are_those_of_methods_that_train_on_the_stream_alone() -> None:
    def rows(name: str) -> int:
        config = choose_method(LearnerConfig(backbone="micro", image_size=16), name)
        return build_parts(Workshop(config=config, seed=0, device=torch.device("cpu"))).batch.rows(config)

    assert {name for name in METHODS if name != "pcmc" and rows(name) <= FEW_ROWS} == {"finetune", "lump", "cla-b"}


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "stored"), [("finetune", 0), ("cla-b", 0), ("lump", 10)])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_small_compiled_steps_agree_with_eager_ones(name: str, stored: int, precision: str) -> None:
    """One step at a time from the same state. A gradient that is read before it is there would be far off."""

    def make(kind: EngineKind) -> Engine:
        config = choose_method(LearnerConfig(backbone="resnet18"), name)
        place = {"seed": 0, "device": torch.device("cuda"), "precision": precision, "kind": kind}
        return build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place)  # type: ignore[arg-type]

    generator = torch.Generator().manual_seed(0)
    batches = torch.randint(0, 256, (30, 10 + stored, 3, 32, 32), dtype=torch.uint8, generator=generator).cuda()
    rows = torch.arange(10).cuda(), torch.arange(10, 10 + stored).cuda()
    eager, small = make("eager"), make("compiled")
    exact = precision == "float32"
    for number, images in enumerate(batches):
        small.load_state_dict(eager.state_dict())
        one = eager._step(images, *rows, torch.zeros(0).cuda())
        other = small._step(images, *rows, torch.zeros(0).cuda())
        for left, right in zip(one[:2], other[:2], strict=True):  # both losses
            near = 1e-3 if exact else 3e-2
            torch.testing.assert_close(right, left, rtol=near, atol=near, equal_nan=True, msg=f"step {number}")
        ours = small.state_dict()
        for part in ("network", "alignment"):  # with the teacher, which a second stream asks
            for key, value in eager.state_dict()[part].items():
                if value.is_floating_point():
                    near, least = (1e-3, 1e-5) if exact else (1e-2, 1e-2)  # norms start at weights of 0
                    assert (value - ours[part][key]).norm() <= near * value.norm() + least, f"{key}, step {number}"
                else:
                    assert torch.equal(value, ours[part][key]), f"{key}, step {number}"
        for key, value in eager.state_dict()["optimizer"].items():  # a gradient that was left out, or taken too early
            near = 1e-2 if exact else 0.3
            assert (value - ours["optimizer"][key]).norm() <= near * value.norm() + 1e-2, f"{key}, step {number}"
        halves = small._step._frequent._halves  # type: ignore[attr-defined]
        assert (halves is None) == exact
        for key, (whole, half) in halves.pairs.items() if halves is not None and number > 5 else ():
            assert torch.equal(whole.to(torch.bfloat16), half), f"{key}, step {number}"
    assert len(small._step._captures) == 1  # type: ignore[attr-defined]


@pytest.mark.gpu
@pytest.mark.parametrize("preset", ["paper", "default"])
def test_small_steps_in_a_row_leave_nothing_behind(preset: str) -> None:
    """Nobody waits between them: what the second stream still does for one must not reach into the next."""
    config = choose_method(apply_preset(LearnerConfig(backbone="resnet18"), preset), "cla-b")
    place = {"seed": 0, "device": torch.device("cuda"), "precision": "bf16", "kind": "compiled"}
    engine = build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place)  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(0)
    quick = engine._frequent_step
    assert quick._halves is not None
    # A teacher that moves in each step is asked in each; one that moves once a mini-batch, in advance and as it is.
    assert (quick._teachers_halves is None) == (engine._in_advance is not None) == (preset == "paper")
    for images in torch.randint(0, 256, (20, 10, 3, 32, 32), dtype=torch.uint8, generator=generator):
        engine.observe(images)
    for halves in (quick._halves, quick._teachers_halves):
        for key, (whole, half) in halves.pairs.items() if halves is not None else ():
            assert whole.isfinite().all(), key
            assert torch.equal(whole.to(torch.bfloat16), half), key
    for part in ("network", "alignment"):  # the teacher sees every step's views, too
        state = {key: value for key, value in engine.state_dict()[part].items() if "aligner" not in key}
        counts = [value for key, value in state.items() if key.endswith("num_batches_tracked")]
        assert {int(count) for count in counts} == {engine.budget.steps}, part
