"""The compiled step against the eager one, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pytest
import torch

from climb.alignment import Alignment, EmaTeacher
from climb.alignment.frozen_copy import frozen_copy
from climb.config import LearnerConfig, MemoryConfig
from climb.engine import Engine, EngineKind, weight_gradients
from climb.engine.captured import EAGER_CALLS
from climb.engine.compiled import compiled
from climb.engine.descent import CompiledDescent
from climb.learner import build_engine
from climb.methods import choose_method
from climb.nets import Encoded

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
    """What is done beside the chain of kernels, and the compiled optimiser, on few images: the teacher, and blends."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    beside = Mock(wraps=weight_gradients._gradient)
    monkeypatch.setattr(weight_gradients, "_gradient", beside)
    batches = torch.randint(0, 256, (12, 20, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    eager, small = make("eager", method), make("compiled", method)
    stored = 0 if method == "cla-b" else 10
    rows = torch.arange(10), torch.arange(10, 10 + stored)
    for number, images in enumerate(batches):
        small.load_state_dict(eager.state_dict())
        one = eager._step(images[: 10 + stored], *rows, torch.zeros(0))
        other = small._step(images[: 10 + stored], *rows, torch.zeros(0))
        for left, right in zip(one, other, strict=True):
            torch.testing.assert_close(right, left, rtol=1e-3, atol=1e-3, equal_nan=True, msg=f"step {number}")
        for name, value in eager.state_dict()["optimizer"].items():
            ours = small.state_dict()["optimizer"][name]
            torch.testing.assert_close(ours, value, rtol=1e-2, atol=1e-3, msg=f"momentum of {name}, step {number}")
        for part in ("network", "alignment"):
            for name, value in eager.state_dict()[part].items():
                ours = small.state_dict()[part][name]
                torch.testing.assert_close(ours, value, rtol=1e-2, atol=1e-3, msg=f"{name} after step {number}")
    assert len(batches) > EAGER_CALLS + 3
    quick = small._step._frequent  # type: ignore[attr-defined]
    assert (quick._ask_teacher is not None) == (method == "cla-b")
    assert quick._descend != eager._eager_step.optimizer.step
    assert beside.called  # which no gradient would be if the losses were more than one graph


class EvaluatedOnly(Alignment):
    """Someone's own: it has a teacher, which is evaluated and never asked."""

    needs_replay = False

    def __init__(self, teacher: torch.nn.Module) -> None:
        super().__init__()
        self._teacher = frozen_copy(teacher)

    @property
    def teacher(self) -> torch.nn.Module:
        return self._teacher

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return encoded.embeddings.square().mean()


class OfReplay(EvaluatedOnly):
    """Someone's own that asks its teacher, but has nothing to say, and asks nothing, before replay starts."""

    needs_replay = True
    asks_of_all = True


def first_views(student: torch.nn.Module) -> Alignment:
    class FirstViews(EmaTeacher):
        """Asks in a way of its own."""

        def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
            return encoded.embedded_by(self.teacher, views=1).mean()

    return FirstViews(student, torch.nn.Identity(), rows="all")


@pytest.mark.parametrize("alignment", [None, EvaluatedOnly, OfReplay, first_views])
def test_a_teacher_is_asked_beforehand_only_if_its_alignment_always_asks_of_all(
    alignment: Callable[[torch.nn.Module], Alignment] | None,
) -> None:
    engine = make("eager", "cla-b")
    if alignment is not None:
        engine._eager_step.parts = replace(engine.parts, alignment=alignment(engine.parts.network))
    assert engine._eager_step.parts.teacher is not None
    assert (engine._eager_step.compiled()._ask_teacher is None) == (alignment is not None)


def test_gradients_that_somebody_listens_to_stay_in_the_chain() -> None:
    """Beside it they would be heard of before they are there."""
    for listen in (None, torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook):
        step = make("eager", "cla-b")._eager_step
        step.precision = "bf16"
        if listen is not None:
            listen(next(iter(step.parameters.values())), lambda gradient: None)
        quick = step.compiled()
        assert isinstance(quick._descend, CompiledDescent) == (quick._halves is not None) == (listen is None)


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
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one graph, which options ask for, it cannot be traced; that it is slower so is said."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    def halved_if_large(x: torch.Tensor) -> torch.Tensor:
        return x / 2 if x.sum().item() > 3 else x

    quick = compiled(halved_if_large, {"combo_kernels": True})
    for x in (torch.ones(2), torch.ones(8), torch.zeros(8)):
        assert torch.equal(quick(x), halved_if_large(x))
    assert [record.message.partition(":")[0] for record in caplog.records if record.name.startswith("climb.")] == [
        "a step is compiled in pieces, and slower"
    ]


def test_what_has_too_many_versions_is_carried_out_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the compiler was given options, for which a function has to be one graph."""

    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    compile_, given = torch.compile, []

    def noted(function: object, *, options: object = None, **rest: object) -> object:
        given.append(options)
        return compile_(function, backend="eager", **rest)  # type: ignore[call-overload]

    monkeypatch.setattr(torch, "compile", noted)
    monkeypatch.setattr("climb.engine.compiled.VERSIONS", 2)
    quick = compiled(twice, {"combo_kernels": True})
    assert given == [None, {"combo_kernels": True}]
    for width in range(2, 7):
        assert torch.equal(quick(torch.ones(width)), torch.full((width,), 2.0))
