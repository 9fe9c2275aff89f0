"""The compiled step against the eager one, on the CPU."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from climb.engine import Engine, EngineKind
from climb.engine.captured import EAGER_CALLS
from climb.engine.compiled import compiled
from climb.methods import choose_method
from climb.methods.build import build_engine
from climb.settings.config import LearnerConfig, MemoryConfig

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when its compiler is imported


def make(kind: EngineKind, method: str = "climb") -> Engine:
    memory = MemoryConfig(capacity=60, stm_centroids=10, ltm_centroids=4, images_per_centroid=5, window=50)
    config = LearnerConfig(backbone="micro", image_size=16, replay_batch=16, memory=memory, lr=0.03)
    config = choose_method(config, method)
    place = {"seed": 0, "device": torch.device("cpu"), "precision": "float32", "kind": kind}
    return build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place)  # type: ignore[arg-type]


@pytest.mark.slow(seconds=100)
def test_compiled_steps_agree_with_eager_ones(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    stream = torch.randint(0, 256, (8, 10, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    eager, compiled = make("eager"), make("compiled")
    for number, images in enumerate(stream):
        compiled.load_state_dict(eager.state_dict())  # training amplifies any difference in rounding
        one, other = eager.observe(images), compiled.observe(images)
        torch.testing.assert_close(other.objective, one.objective, rtol=1e-3, atol=1e-3, msg=f"mini-batch {number}")
        for name, value in eager.parts.network.state_dict().items():
            ours = compiled.parts.network.state_dict()[name]
            torch.testing.assert_close(ours, value, rtol=1e-2, atol=1e-3, msg=f"{name} after mini-batch {number}")
        assert other.report == one.report
    assert eager.budget.steps - 3 * 2 > EAGER_CALLS  # replay starts with the third mini-batch
    assert compiled.budget == eager.budget


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("method", ["cla-b", "lump"])
def test_small_compiled_steps_agree_with_eager_ones(
    method: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    batches = torch.randint(0, 256, (12, 20, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    eager, small = make("eager", method), make("compiled", method)
    stored = 0 if method == "cla-b" else 10
    rows = torch.arange(10), torch.arange(10, 10 + stored)
    differences = []
    for number, images in enumerate(batches):
        small.load_state_dict(eager.state_dict())
        one = eager._step(images[: 10 + stored], *rows, torch.zeros(0))
        other = small._step(images[: 10 + stored], *rows, torch.zeros(0))
        for left, right in zip(one, other, strict=True):
            torch.testing.assert_close(right, left, rtol=1e-3, atol=1e-3, equal_nan=True, msg=f"step {number}")
        ours = small.state_dict()["optimizer"]
        differences.append(
            max(
                float((ours[name] - value).norm() / value.norm())
                for name, value in eager.state_dict()["optimizer"].items()
            )
        )
        for part in ("network", "alignment"):
            for name, value in eager.state_dict()[part].items():
                ours = small.state_dict()[part][name]
                torch.testing.assert_close(ours, value, rtol=1e-2, atol=1e-3, msg=f"{name} after step {number}")
    # Rounding may move an activation across zero, where the gradient of a ReLU jumps. That is rare.
    assert sorted(differences)[-3] < 1e-3, differences
    assert max(differences) < 0.05, differences
    assert len(batches) > EAGER_CALLS + 3


def test_many_learners_in_one_process_stay_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of a grid trains one method after another, and all share the methods of one class."""
    from torch._dynamo.utils import counters

    class Learner:
        def __init__(self, width: int) -> None:
            self.width = width

        def step(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.width

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    before = counters["stats"]["unique_graphs"]
    for width in range(2, 22):
        step = compiled(Learner(width).step)
        assert torch.equal(step(torch.ones(width)), torch.full((width,), float(width)))
    assert counters["stats"]["unique_graphs"] - before == 20


@pytest.mark.slow
def test_what_branches_on_a_number_is_carried_out_all_the_same(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def halved_if_large(x: torch.Tensor) -> torch.Tensor:
        return x / 2 if x.sum().item() > 3 else x

    quick = compiled(halved_if_large)
    for x in (torch.ones(2), torch.ones(8), torch.zeros(8)):
        assert torch.equal(quick(x), halved_if_large(x))


def test_what_has_too_many_versions_is_carried_out_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    monkeypatch.setattr("climb.engine.compiled.VERSIONS", 2)
    quick = compiled(twice)
    for width in range(2, 7):
        assert torch.equal(quick(torch.ones(width)), torch.full((width,), 2.0))
