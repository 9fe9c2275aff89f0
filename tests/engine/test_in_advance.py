"""What is known before the first pass over a mini-batch, against what each pass would find out by itself."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn

from climb.alignment import EmaTeacher
from climb.config import LearnerConfig
from climb.engine import Engine, EngineKind, in_advance
from climb.engine.numerics import numerics
from climb.engine.rules import MixUp
from climb.learner import build_engine
from climb.methods import choose_method
from climb.presets import apply_preset

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32:UserWarning")


def apart(engine: Engine, images: torch.Tensor, passes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """As the eager step goes about it: pass by pass, the teacher itself."""
    step = engine._eager_step
    assert step.parts.teacher is not None
    views, said = [], []
    for _ in range(passes):
        numbers = step.augment.numbers(images, step.generator)
        views.append(step.augment.views(images, numbers))
        with numerics(step.device, step.precision):
            said.append(step._eager_ask(views[-1]))
    return torch.stack(views), torch.stack(said)


@pytest.mark.parametrize(("n", "passes", "at_a_time"), [(10, 41, 41), (10, 41, 12), (3, 2, 0)])
def test_it_is_what_each_pass_would_find(
    make_engine: Callable[..., Engine],
    images: Callable[..., torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
    n: int,
    passes: int,
    at_a_time: int,
) -> None:
    one, other = make_engine("cla-b", "paper"), make_engine("cla-b", "paper")
    monkeypatch.setattr(in_advance, "MOST_PIXELS", at_a_time * 2 * n * images(n)[0, 0].numel())
    asked: list[int] = []
    expected = apart(one, images(n), passes)
    asker = other._eager_step.in_advance()
    asker._ask = lambda views: asked.append(len(views)) or asker._eager_ask(views)  # type: ignore[func-returns-value]
    known = asker(images(n), torch.zeros(passes))
    assert asked == {41: [41], 12: [11, 10, 10, 10], 0: [1, 1]}[at_a_time]  # one pass at least
    assert torch.equal(known[0], expected[0])
    torch.testing.assert_close(known[1], expected[1], rtol=1e-3, atol=1e-4)
    left, right = one.state_dict(), other.state_dict()
    assert torch.equal(left["augmentation"], right["augmentation"])
    for name, value in left["alignment"].items():
        torch.testing.assert_close(right["alignment"][name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_a_step_on_known_views_is_the_step(
    make_engine: Callable[..., Engine], images: Callable[..., torch.Tensor]
) -> None:
    one, other = make_engine("cla-b", "paper"), make_engine("cla-b", "paper")
    rows = torch.arange(10), torch.arange(0)
    expected = one._step(images(), *rows, torch.zeros(0))
    views, said = other._eager_step.in_advance()(images(), torch.zeros(1))
    outputs = other._eager_step.on_views(views[0], said[0], *rows)
    for ours, theirs in zip(outputs, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    for part in ("network", "alignment", "optimizer"):
        for name, value in one.state_dict()[part].items():
            torch.testing.assert_close(other.state_dict()[part][name], value, rtol=1e-4, atol=1e-5, msg=name)


def test_only_where_images_and_teacher_stay_as_they_are(make_engine: Callable[..., Engine]) -> None:
    def knows(method: str, preset: str = "paper", **changes: object) -> bool:
        return make_engine(method, preset, **changes)._eager_step.knows_in_advance

    assert knows("cla-b")
    assert not knows("cla-b", "default")  # the teacher moves with each step
    assert not knows("cla-b", "reference")  # all images of a view share one draw
    assert not knows("cla-e")
    assert not knows("finetune")
    step = make_engine("cla-b", "paper")._eager_step
    step.parts = replace(step.parts, batch=MixUp())  # a third party's method: each pass has other images
    assert not step.knows_in_advance


def test_of_an_alignment_of_somebodys_own_nothing_is_known(make_engine: Callable[..., Engine]) -> None:
    class Jumping(EmaTeacher):
        """Averages once a mini-batch, and does something in each step as well."""

        def after_step(self, student: nn.Module) -> None:
            self._average(student)

    step = make_engine("cla-b", "paper")._eager_step
    assert isinstance(step.parts.alignment, EmaTeacher)
    step.parts = replace(
        step.parts, alignment=Jumping(step.parts.network, step.parts.alignment.aligner, period="batch", rows="all")
    )
    assert not step.knows_in_advance
    assert step.parts.alignment is not None
    assert step.parts.alignment.moves_each_step


def make(kind: EngineKind, backbone: str, device: str, precision: str) -> Engine:
    # Two passes a mini-batch: in ten, rounding that tips a relu grows to a tenth of a momentum.
    side = 16 if backbone == "micro" else 32
    config = LearnerConfig(backbone=backbone, image_size=side, passes=1, stream_batch=10, replay_batch=10)
    config = choose_method(apply_preset(config, "paper"), "cla-b")
    place = {"seed": 0, "device": torch.device(device), "precision": precision, "kind": kind}
    return build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, **place)  # type: ignore[arg-type]


@pytest.mark.slow(seconds=60)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_compiled_mini_batches_agree_with_eager_ones(
    precision: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    batches = torch.randint(0, 256, (8, 10, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    eager, quick = (make(kind, "micro", "cpu", precision) for kind in ("eager", "compiled"))
    assert quick._in_advance is not None
    assert eager.passes() == 2
    for number, images in enumerate(batches):
        quick.load_state_dict(eager.state_dict())  # training amplifies any difference in rounding
        one, other = eager.observe(images), quick.observe(images)
        exact = precision == "float32"
        near = {} if exact else {"rtol": 0.02, "atol": 0.02}
        torch.testing.assert_close(other.objective, one.objective, **near)
        torch.testing.assert_close(other.alignment, one.alignment, **near)
        for part in ("network", "alignment", "optimizer"):
            for name, value in eager.state_dict()[part].items():
                ours = quick.state_dict()[part][name]
                if exact:
                    torch.testing.assert_close(
                        ours, value, rtol=1e-3, atol=1e-5, msg=f"{name} after mini-batch {number}"
                    )
                else:  # in all: of single numbers rounding may leave little
                    far = (ours.float() - value.float()).norm()
                    assert far <= 0.3 * value.float().norm() + 1e-3, f"{name} after mini-batch {number}: {far}"
        assert torch.equal(quick.state_dict()["augmentation"], eager.state_dict()["augmentation"])
    assert quick.budget == eager.budget


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_captured_answers_agree_with_those_of_each_pass(precision: str) -> None:
    eager, quick = (make(kind, "resnet18", "cuda", precision) for kind in ("eager", "compiled"))
    assert quick._in_advance is not None
    draws = torch.Generator().manual_seed(0)
    for number in range(12):
        images = torch.randint(0, 256, (10, 3, 32, 32), dtype=torch.uint8, generator=draws).cuda()
        quick.load_state_dict(deepcopy(eager.state_dict()))
        views, said = apart(eager, images, 17)
        known = quick._in_advance(images, torch.zeros(17).cuda())
        near = 1e-3 if precision == "float32" else 5e-2
        assert (known[0] - views).norm() <= 1e-3 * views.norm(), f"views of mini-batch {number}"
        assert (known[1].float() - said.float()).norm() <= near * said.float().norm(), f"mini-batch {number}"
        for name, value in eager.state_dict()["alignment"].items():
            ours = quick.state_dict()["alignment"][name]
            assert (ours - value).float().norm() <= near * value.float().norm() + 1e-4, f"{name}, {number}"
    assert len(quick._in_advance._captures) == 1  # type: ignore[attr-defined]
