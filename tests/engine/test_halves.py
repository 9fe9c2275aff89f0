"""Weights kept in bf16: the same network, the same numbers, and never out of date."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from climb.config import LearnerConfig
from climb.engine import descent, weight_gradient_pass
from climb.engine.descent import CompiledDescent
from climb.engine.halves import Halves, is_known
from climb.engine.parts import Parts
from climb.engine.weight_gradients import Taker, hand_over, weight_gradient
from climb.errors import ClimbError
from climb.learner import build_engine
from climb.methods import choose_method
from climb.nets.resnet import resnet18

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported


def network() -> nn.Sequential:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    return layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def out_of_date(halves: Halves) -> bool:
    return not all(torch.equal(half, whole.to(torch.bfloat16)) for whole, half in halves.pairs.values())


def test_a_twin_computes_what_autocast_does() -> None:
    images = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    wholes, other = network(), network()
    other.load_state_dict(wholes.state_dict())
    halves = Halves(other)
    with torch.autocast("cpu", torch.bfloat16):
        expected, given = wholes(images), halves.network(images)
    torch.testing.assert_close(given, expected, rtol=0, atol=0)
    expected.float().square().sum().backward()
    given.float().square().sum().backward()
    assert set(halves.pairs) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    for name, (whole, half) in halves.pairs.items():
        assert whole.grad is None
        torch.testing.assert_close(half.grad.float(), wholes.get_parameter(name).grad, rtol=0, atol=0)  # type: ignore[union-attr]
    for name, value in wholes.state_dict().items():  # running statistics are those of the network itself
        torch.testing.assert_close(other.state_dict()[name], value, rtol=0, atol=0)


def test_a_weight_of_two_layers_has_one_half() -> None:
    """A second one would be used by nobody, and never be right."""
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    halves = Halves(tied)
    assert set(halves.pairs) == {"0.weight", "0.bias", "1.bias"}
    assert halves.network[0].weight is halves.network[1].weight is halves.pairs["0.weight"][1]  # type: ignore[index]


def test_what_anybody_changes_is_cast_again() -> None:
    one, later = network(), network()
    halves = Halves(one)
    assert not out_of_date(halves)
    one.load_state_dict(later.state_dict())
    assert out_of_date(halves)
    halves.refresh()
    assert not out_of_date(halves)


def test_a_twin_follows_the_network_in_mode_and_in_what_is_trained() -> None:
    one = network()
    halves = Halves(one)
    one[1].eval()
    one[3].requires_grad_(False)
    halves.refresh()
    assert [module.training for module in halves.network.modules()] == [module.training for module in one.modules()]
    assert [half.requires_grad for _, half in halves.pairs.values()] == [True, True, False, False]


def test_only_networks_whose_modules_are_known_are_halved() -> None:
    class Odd(nn.Linear):
        """Somebody's own: it does more with its weight than multiply."""

    assert is_known(network())
    assert is_known(resnet18(32, generator=torch.Generator().manual_seed(0)))
    assert not is_known(nn.Sequential(Odd(2, 2)))
    watched = network()
    watched[0].register_forward_hook(lambda *given: None)
    assert not is_known(watched)


@pytest.mark.slow
def test_a_descent_with_halves_goes_where_torch_goes() -> None:
    generator = torch.Generator().manual_seed(0)
    theirs, ours = network(), network()
    ours.load_state_dict(theirs.state_dict())
    halves = Halves(ours)
    settings = {"lr": 0.3, "momentum": 0.9, "weight_decay": 0.01}
    one, other = (torch.optim.SGD(each.parameters(), **settings) for each in (theirs, ours))  # type: ignore[arg-type]
    for parameter in ours.parameters():
        other.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    step = CompiledDescent(other, halves)
    for number in range(3):
        for name, parameter in theirs.named_parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator).to(torch.bfloat16).float()
            if name in halves.pairs:
                whole, half = halves.pairs[name]
                half.grad = parameter.grad.to(torch.bfloat16)
                if number > 0:  # as of a part that computes with the network's own weights
                    whole.grad = torch.randn(whole.shape, generator=generator)
                    parameter.grad += whole.grad
            else:
                ours.get_parameter(name).grad = parameter.grad.clone()
        one.step()
        step()
        step.forget()
        for name, parameter in theirs.named_parameters():
            mine = ours.get_parameter(name)
            torch.testing.assert_close(mine, parameter, rtol=1e-6, atol=1e-6, msg=f"{name} after step {number}")
        assert not out_of_date(halves)
    step._taken.add(ours[0].weight)  # type: ignore[arg-type]  # as if it had been stepped during the backward
    ours[0].weight.grad = torch.zeros_like(ours[0].weight)  # type: ignore[arg-type]
    with pytest.raises(ClimbError, match="in some steps and not in others"):
        step()


def test_a_gradient_is_taken_only_once_the_chain_is_through_with_its_weight_and_while_somebody_is_there() -> None:
    weight, next_weight = torch.randn(4, 3, 3, 3), torch.randn(4, 3, 3, 3)
    taken: list[torch.Tensor] = []
    takers = [Taker(weight, taken.append)]
    hand_over(takers)
    inputs, outgoing = torch.randn(2, 3, 5, 5), torch.randn(2, 4, 5, 5)
    rest = ([1, 1], [1, 1], [1, 1], 1, torch.float32)
    gradient = weight_gradient(outgoing, inputs, weight, *rest, None, None)
    assert taken == []
    weight_gradient(outgoing, inputs, next_weight, *rest, weight, inputs)
    assert len(taken) == 1
    assert torch.equal(taken[0], gradient)
    weight_gradient(outgoing, inputs, next_weight, *rest, weight, inputs)
    assert len(taken) == 1  # once
    weight_gradient(outgoing, inputs, weight, *rest, None, None)
    takers.clear()
    weight_gradient(outgoing, inputs, next_weight, *rest, weight, inputs)
    assert len(taken) == 1


@pytest.mark.slow(seconds=60)
def test_compiled_steps_are_the_same_with_and_without_halves(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, with weights that are stepped while the backward goes on, and a teacher that is averaged."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for module in (descent, weight_gradient_pass):
        monkeypatch.setattr(module, "MANY_WEIGHTS", 500)
    prepare = Parts.prepare

    def as_on_a_gpu(parts: Parts, device: torch.device) -> None:
        prepare(parts, device)
        for part in (parts.network, parts.alignment):
            part.to(memory_format=torch.channels_last)  # type: ignore[call-overload,union-attr]

    monkeypatch.setattr(Parts, "prepare", as_on_a_gpu)
    stepped: list[torch.Size] = []
    step_one = descent._step_one

    def noted(whole: torch.Tensor, *rest: Any) -> None:
        stepped.append(whole.shape)
        step_one(whole, *rest)

    monkeypatch.setattr(descent, "_step_one", noted)

    def engines(halved: bool) -> list[dict[str, torch.Tensor]]:
        stepped.clear()
        with monkeypatch.context() as patched:
            if not halved:
                patched.setattr("climb.engine.step.is_known", lambda network: False)
            config = choose_method(LearnerConfig(backbone="micro", image_size=16, replay_batch=16, lr=0.03), "cla-b")
            place = {"seed": 0, "device": torch.device("cpu"), "precision": "bf16", "kind": "compiled"}
            engine = build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place)  # type: ignore[arg-type]
        start = copy.deepcopy(engine.state_dict())
        states = []
        for number, images in enumerate(batches):
            if number == 3:
                engine.load_state_dict(start)  # as somebody may, at any time
            engine.observe(images)
            states.append(copy.deepcopy({**engine.state_dict()["network"], **engine.state_dict()["alignment"]}))
        quick = engine._step._frequent  # type: ignore[attr-defined]
        assert (quick._halves is not None) == (quick._teachers_halves is not None) == halved
        return states

    batches = torch.randint(0, 256, (5, 10, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    plain = engines(False)
    assert not stepped
    halved = engines(True)
    assert len(stepped) >= 2
    for number, (one, other) in enumerate(zip(plain, halved, strict=True)):
        for name, value in one.items():
            torch.testing.assert_close(other[name], value, rtol=0, atol=0, msg=f"{name} after mini-batch {number}")
