"""Learning from pretrained weights: the preset, its learning rates, its warm-up, and the guard."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch

from climb.alignment import EmaTeacher, StartTeacher
from climb.engine import Engine, guard
from climb.methods.build import build_engine, chosen_network
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.settings.presets import apply_preset


def engine_of(**settings: Any) -> Engine:
    memory = MemoryConfig(capacity=60, stm_centroids=8, ltm_centroids=3, images_per_centroid=6)
    base = LearnerConfig(backbone="micro", image_size=16, replay_batch=16, passes=1, memory=memory)
    config = replace(apply_preset(base, "adapt"), **settings)
    cpu = torch.device("cpu")
    return build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, seed=0, device=cpu, precision="float32", kind="eager")


def images(count: int = 10, seed: int = 0) -> torch.Tensor:
    """Images with some structure: colours and a gradient."""
    generator = torch.Generator().manual_seed(seed)
    colour = torch.rand(count, 3, 1, 1, generator=generator)
    slope = torch.rand(count, 3, 1, 1, generator=generator) * torch.linspace(0, 1, 16).view(1, 1, 1, 16)
    noise = 0.2 * torch.rand(count, 3, 16, 16, generator=generator)
    return ((colour + slope + noise) / 2.2 * 255).to(torch.uint8)


def learn(engine: Engine, batches: int, first: int = 0) -> None:
    for number in range(first, first + batches):
        engine.observe(images(seed=number))


def encoder_of(engine: Engine) -> dict[str, torch.Tensor]:
    return copy.deepcopy(engine.parts.network.encoder.state_dict())


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, second[name]) for name, value in first.items())


def test_the_warm_up_trains_the_heads_alone() -> None:
    engine = engine_of(head_warmup=5)
    start, head = encoder_of(engine), copy.deepcopy(engine.parts.network.projector.state_dict())
    learn(engine, 5)
    assert equal(encoder_of(engine), start)
    assert not equal(engine.parts.network.projector.state_dict(), head)
    assert all(parameter.requires_grad for parameter in engine.parts.network.encoder.parameters())
    learn(engine, 1, first=5)
    assert not equal(encoder_of(engine), start)


def test_the_heads_have_a_learning_rate_of_their_own() -> None:
    engine = engine_of(head_warmup=0, lr=1e-9, head_lr=0.03, weight_decay=0.0, momentum=0.0)
    start, head = encoder_of(engine), copy.deepcopy(engine.parts.network.projector.state_dict())
    learn(engine, 1)
    after = engine.parts.network
    moved = max(float((after.encoder.state_dict()[name] - value).abs().max()) for name, value in start.items())
    assert 0 < moved < 1e-6
    key = "0.weight"
    assert float((after.projector.state_dict()[key] - head[key]).abs().max()) > 1e-5


def test_statistics_stay_those_of_the_start() -> None:
    engine = engine_of(head_warmup=0)
    start = encoder_of(engine)
    learn(engine, 8)
    now = encoder_of(engine)
    assert all(torch.equal(now[name], start[name]) for name in now if "running" in name)
    assert any(not torch.equal(now[name], start[name]) for name in now if "weight" in name)


def test_the_evaluated_network_is_halfway_to_the_start() -> None:
    engine = engine_of(head_warmup=0)
    start = encoder_of(engine)
    learn(engine, 8)
    name, network = chosen_network(engine)
    assert name == "average"
    for key, value in network.encoder.state_dict().items():
        if value.is_floating_point():
            torch.testing.assert_close(value, (start[key] + encoder_of(engine)[key]) / 2)


def test_every_method_with_a_teacher_is_aligned_to_the_start() -> None:
    for method in ("climb", "climb-fifo", "climb-reservoir", "cla-e", "cla-b"):
        assert isinstance(engine_of(method=method).parts.alignment, StartTeacher)
        assert isinstance(engine_of(method=method, align_to_start=False).parts.alignment, EmaTeacher)
    assert engine_of(method="finetune").parts.alignment is None


@pytest.mark.parametrize("stop", [3, 12, 25])
def test_a_loaded_state_continues_to_the_same_bits(stop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PERIOD", 10)
    whole = engine_of(head_warmup=4)
    learn(whole, stop)
    other = engine_of(head_warmup=4)
    learn(other, 2)  # at another state
    other.load_state_dict(copy.deepcopy(whole.state_dict()))
    learn(whole, 12, first=stop)
    learn(other, 12, first=stop)
    assert equal(whole.parts.network.state_dict(), other.parts.network.state_dict())
    assert equal(chosen_network(whole)[1].state_dict(), chosen_network(other)[1].state_dict())


# -- the guard ---------------------------------------------------------------------------------------------------------


def test_a_sound_run_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PERIOD", 10)
    guarded, free = engine_of(), engine_of(guard=False)
    learn(guarded, 60)
    learn(free, 60)
    assert guarded.guard is not None
    assert guarded.guard.failures == 0
    assert equal(encoder_of(guarded), encoder_of(free))


def test_a_collapsed_encoder_is_restored_and_the_rates_fall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PERIOD", 10)
    engine = engine_of(head_warmup=0)
    learn(engine, 10)  # found healthy
    assert engine.guard is not None
    healthy = encoder_of(engine)
    with torch.no_grad():  # all features one point
        for parameter in engine.parts.network.encoder.parameters():
            parameter.mul_(0.0)
    engine.guard.check(engine)
    assert equal(encoder_of(engine), healthy)
    assert engine.guard.event is not None
    assert "fell" in engine.guard.event.reason
    rates = [group["lr"] for group in engine._eager_step.optimizer.param_groups]
    assert rates == pytest.approx([0.001 / 3, 0.03 / 3])
    other = engine_of(head_warmup=0)
    other.load_state_dict(copy.deepcopy(engine.state_dict()))
    assert [group["lr"] for group in other._eager_step.optimizer.param_groups] == pytest.approx(rates)


@pytest.mark.parametrize("kind", ["huge rate", "equal images"])
def test_after_three_failures_the_start_stays(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PERIOD", 10)
    engine = engine_of(head_warmup=0, **({"lr": 100.0} if kind == "huge rate" else {}))
    start = encoder_of(engine)
    for number in range(90):
        engine.observe(images(seed=number) if kind == "huge rate" else torch.zeros(10, 3, 16, 16, dtype=torch.uint8))
    assert engine.guard is not None
    assert engine.guard.failures == 3
    assert equal(encoder_of(engine), start)
    assert equal(chosen_network(engine)[1].encoder.state_dict(), start)


def test_an_encoder_that_is_handed_out_is_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "PERIOD", 10)
    engine = engine_of(head_warmup=0)
    learn(engine, 10)
    assert engine.guard is not None
    healthy = copy.deepcopy(chosen_network(engine)[1].encoder.state_dict())
    with torch.no_grad():
        for parameter in engine.parts.network.encoder.parameters():
            parameter.mul_(0.0)
    broken = encoder_of(engine)
    for verify in (False, True):
        assert equal(engine.guard.published(engine, verify=verify).encoder.state_dict(), healthy)
    assert equal(encoder_of(engine), broken)  # training is not touched


def test_of_images_that_are_all_alike_only_the_start_is_handed_out() -> None:
    engine = engine_of(head_warmup=0, weight_decay=0.1)
    start = encoder_of(engine)
    one = images(1).repeat(10, 1, 1, 1)
    for _ in range(12):
        engine.observe(one)
    assert not equal(encoder_of(engine), start)
    assert engine.guard is not None
    assert equal(engine.guard.published(engine, verify=True).encoder.state_dict(), start)
