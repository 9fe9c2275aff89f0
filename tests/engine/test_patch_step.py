"""PCMC's step, compiled and captured, against the eager one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from climb.contrib.pcmc.engine import Pcmc, Sleep, build_pcmc
from climb.contrib.pcmc.patches import Patching
from climb.engine import EngineKind
from climb.engine.captured import EAGER_CALLS
from climb.settings.config import LearnerConfig, MemoryConfig

Draw = Callable[..., torch.Tensor]

PATCHING = Patching(image=16, patch=8, stride=4)  # 9 patches of an image
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def make(kind: EngineKind, device: torch.device = CPU, **changes: Any) -> Pcmc:
    memory = MemoryConfig(capacity=60, images_per_centroid=6, window=100, novelty_percentile=0.9)
    config = LearnerConfig(method="pcmc", backbone="micro", image_size=16, replay_batch=8, memory=memory)
    settings: dict[str, Any] = {"precision": "float32", "patching": PATCHING, "stm_centroids": 12} | changes
    sleep = Sleep(every=30, epochs=3, batch=16, lr=0.05)
    place = {"seed": 0, "sleep": sleep, "device": device, "kind": kind}
    return build_pcmc(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place, **settings)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
def test_what_is_compiled_is_traced_in_one_piece(images: Draw) -> None:
    """What cannot be traced would run as it is, without a word, and slowly."""
    step = make("eager")._eager_step
    patches, none = PATCHING(images(2)), torch.zeros(0)
    rows = torch.arange(len(patches))
    drawn = (patches, step.augment.numbers(patches, step.generator), rows[:0], rows, None)
    whole = {"backend": "eager", "fullgraph": True}
    mixed = step._eager_views(*drawn)
    assert torch.equal(torch.compile(step._eager_views, **whole)(*drawn).views, mixed.views)  # type: ignore[call-overload]
    losses = torch.compile(step._eager_losses, **whole)(mixed, none)  # type: ignore[call-overload]
    assert torch.equal(losses[0], step._eager_losses(mixed, none)[0])
    plain = step.augment.plain(patches)
    features, _ = torch.compile(step._eager_encode, **whole)(plain)  # type: ignore[call-overload]
    assert torch.equal(features, step._eager_encode(plain)[0])


@pytest.mark.slow(seconds=45)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
def test_compiled_steps_agree_with_eager_ones(images: Draw, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    eager, compiled = make("eager"), make("compiled")
    for number in range(EAGER_CALLS + 4):
        compiled.load_state_dict(eager.state_dict())  # training amplifies any difference in rounding
        patches = PATCHING(images(4, number))
        losses, features = [], []
        for engine in (eager, compiled):
            engine._eager_step.load_state_dict({})  # momentum is not part of the state
            losses.append(engine._train(patches))
            features.append(engine.embed(images(4, number)))
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-3, msg=f"step {number}")
        torch.testing.assert_close(features[1], features[0], rtol=1e-2, atol=1e-3, msg=f"step {number}")
        for name, value in eager.parts.network.state_dict().items():
            ours = compiled.parts.network.state_dict()[name]
            torch.testing.assert_close(ours, value, rtol=1e-2, atol=1e-3, msg=f"{name} after step {number}")


@pytest.mark.slow(seconds=45)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported
def test_a_compiled_engine_sleeps(images: Draw, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    sleeps_and_learns(make("compiled"), images)


def sleeps_and_learns(engine: Pcmc, images: Draw) -> None:
    before = {name: value.detach().clone() for name, value in engine.parts.network.named_parameters()}
    seen = [engine.observe(images(10, number)) for number in range(9)]
    assert [one.report.pruned for one in seen] == [0, 0, 1] * 3
    assert seen[-1].objective.isfinite()
    assert engine.budget.steps > EAGER_CALLS
    for name, value in engine.parts.network.named_parameters():
        assert not torch.equal(before[name], value), name


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["captured", "compiled"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore:TensorFloat32:UserWarning")
def test_a_faster_step_agrees_with_an_eager_one_and_follows_the_rate(kind: EngineKind, images: Draw) -> None:
    """Kernels are chosen separately, so rounding differs and training amplifies it."""
    eager, faster = make("eager", CUDA), make(kind, CUDA)
    for number in range(12):
        patches = PATCHING(images(5, number).to(CUDA))
        losses = []
        for engine in (eager, faster):
            engine._lr.fill_(0.05 / (number + 1))
            losses.append(engine._train(patches).clone())
        torch.testing.assert_close(losses[1], losses[0], rtol=1e-2, atol=1e-3 if number < 2 else 1e-2)
    assert len(faster._step._captures) == 1  # type: ignore[attr-defined]
    still = [parameter.detach().clone() for parameter in faster.parts.network.parameters()]
    faster._lr.fill_(0.0)
    faster._train(patches)
    for before, after in zip(still, faster.parts.network.parameters(), strict=True):
        assert torch.equal(before, after)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["captured", "compiled"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore:TensorFloat32:UserWarning")
def test_a_faster_engine_sleeps_on_a_gpu(kind: EngineKind, images: Draw) -> None:
    sleeps_and_learns(make(kind, CUDA, precision="bf16"), images)
