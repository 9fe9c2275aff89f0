"""One gradient step: what the optimiser holds, what the step returns."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import get_args

import pytest
import torch
from torch import nn

from climb.alignment import EmaTeacher
from climb.engine import Engine, Parts
from climb.engine.numerics import Precision
from climb.engine.step import TrainStep, trainable
from climb.errors import ClimbError
from climb.methods import METHODS
from climb.nets import Encoded, frozen
from climb.objectives import Objective
from climb.objectives.byol import BYOL

Make = Callable[..., Engine]


def step_of(engine: Engine, parts: Parts | None = None, *, precision: Precision = "float32") -> TrainStep:
    return TrainStep(
        parts or engine.parts,
        engine.augment,
        engine.config,
        generator=torch.Generator().manual_seed(0),
        precision=precision,
        device=engine.device,
    )


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"pcmc"}))
def test_every_trainable_parameter_is_in_the_optimiser_once(method: str, make_engine: Make) -> None:
    engine = make_engine(method)
    parts = engine.parts
    held = [id(p) for group in step_of(engine).optimizer.param_groups for p in group["params"]]
    modules = [module for module in (parts.network, parts.objective, parts.alignment) if module is not None]
    expected = [id(p) for module in modules for p in module.parameters() if p.requires_grad]
    assert sorted(held) == sorted(expected)
    assert len(set(held)) == len(held)
    teacher = parts.alignment.teacher if parts.alignment is not None else None
    if teacher is not None:
        assert not {id(p) for p in teacher.parameters()} & set(held)
        assert not any(p.requires_grad for p in teacher.parameters())


def test_the_optimiser_is_sgd_with_decay_on_everything(make_engine: Make) -> None:
    (group,) = step_of(make_engine(lr=0.07)).optimizer.param_groups
    assert (group["lr"], group["momentum"], group["weight_decay"], group["nesterov"]) == (0.07, 0.9, 1e-4, False)


def test_a_frozen_parameter_is_left_out_and_no_other(make_engine: Make) -> None:
    parts = make_engine().parts
    whole = trainable(parts)
    first = next(iter(whole))
    whole[first].requires_grad_(False)
    assert trainable(parts).keys() == whole.keys() - {first}


class Sharing(Objective):
    """An objective that trains a part of the network as its own."""

    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.shared = shared

    def forward(self, encoded: Encoded) -> torch.Tensor:
        return encoded.embeddings.mean()


def test_a_parameter_of_two_parts_is_refused(make_engine: Make) -> None:
    parts = make_engine().parts
    shared = replace(parts, objective=Sharing(parts.network.projector))
    with pytest.raises(ClimbError, match=r"parameter objective\.shared\.\S+ belongs to two parts"):
        trainable(shared)


def test_the_alignment_counts_by_its_weight_and_at_zero_not_at_all(make_engine: Make) -> None:
    images = torch.randint(0, 256, (12, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    weights = []
    for weight in (0.0, 1.0, 2.0):
        engine = make_engine(alignment_weight=weight)
        step_of(engine)(images, torch.arange(6), torch.arange(6, 12), torch.zeros(0))
        weights.append(next(engine.parts.network.parameters()).detach())
    plain = make_engine("er-fifo")
    step_of(plain)(images, torch.arange(6), torch.arange(6, 12), torch.zeros(0))
    torch.testing.assert_close(weights[0], next(plain.parts.network.parameters()).detach())
    assert not torch.allclose(weights[1], weights[0])
    torch.testing.assert_close(weights[2] - weights[0], 2 * (weights[1] - weights[0]), rtol=1e-3, atol=1e-6)


def test_each_loss_is_reported_by_itself_and_before_any_weight(make_engine: Make) -> None:
    images = torch.randint(0, 256, (12, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    rows = torch.arange(6), torch.arange(6, 12)
    found = [step_of(make_engine(alignment_weight=weight))(images, *rows, torch.zeros(0)) for weight in (0.0, 1.0, 3.0)]
    for objective, alignment, *_ in found:
        assert alignment > 0
        assert (objective.item(), alignment.item()) == (found[0][0].item(), found[0][1].item())


def test_an_objective_is_given_targets_only_where_the_memory_stores_some(make_engine: Make) -> None:
    engine = make_engine()
    given: list[torch.Tensor | None] = []
    engine.parts.objective.register_forward_hook(lambda _, inputs, __: given.append(inputs[0].targets))
    images, targets = torch.zeros(5, 3, 16, 16, dtype=torch.uint8), torch.ones(3, engine.parts.network.embedding_dim)
    for stored in (targets, torch.zeros(0)):
        step_of(engine)(images, torch.arange(2), torch.arange(2, 5), stored)
    assert given[0] is targets
    assert given[1] is None


def test_where_no_memory_asks_a_step_embeds_by_the_projector_and_a_forward_by_the_backbone(make_engine: Make) -> None:
    images = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    engine = make_engine("finetune")
    assert engine.parts.memory is None
    views = engine.augment(images, torch.Generator().manual_seed(0))
    with torch.no_grad():
        features, embeddings = deepcopy(engine.parts.network)(views.flatten(0, 1))
        torch.testing.assert_close(step_of(engine).forward(views.flatten(0, 1)), features)
    none = torch.zeros(0, dtype=torch.int64)
    _, _, streamed, _ = step_of(engine)(images, torch.arange(5), none, torch.zeros(0))
    torch.testing.assert_close(streamed, embeddings.view(2, 5, -1).mean(0))


def test_returns_the_embeddings_of_each_kind_of_row(make_engine: Make) -> None:
    images = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    engine = make_engine()
    network = engine.parts.network
    views = engine.augment(images, torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = network(views.flatten(0, 1))[1].view(2, 5, -1).mean(0)
    engine = make_engine()
    stream_rows, replay_rows = torch.tensor([1, 4]), torch.tensor([3, 0, 2])
    found = step_of(engine)(images, stream_rows, replay_rows, torch.zeros(0))
    _, alignment, streamed, replayed = found
    assert not any(tensor.requires_grad for tensor in found)  # whoever keeps one must not keep the step's whole graph
    torch.testing.assert_close(streamed, expected[stream_rows])
    torch.testing.assert_close(replayed, expected[replay_rows])
    assert torch.isfinite(alignment)


def test_under_the_paper_replayed_rows_are_embedded_again_by_the_network_after_the_step(make_engine: Make) -> None:
    images = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    engine = make_engine(preset="paper")
    views = engine.augment(images, torch.Generator().manual_seed(0))
    stream_rows, replay_rows = torch.tensor([1, 4]), torch.tensor([3, 0, 2])
    *_, replayed = step_of(engine)(images, stream_rows, replay_rows, torch.zeros(0))
    with frozen(engine.parts.network):
        expected = engine.parts.network(views[:, replay_rows].flatten(0, 1))[1].view(2, 3, -1).mean(0)
    torch.testing.assert_close(replayed, expected)


def test_an_objective_is_shown_the_network_after_its_step(make_engine: Make) -> None:
    engine = make_engine(objective="byol")
    objective, network = engine.parts.objective, engine.parts.network
    assert isinstance(objective, BYOL)
    before = [parameter.clone() for parameter in objective.momentum.parameters()]
    images = torch.randint(0, 256, (6, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    step_of(engine)(images, torch.arange(6), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    after = (objective.momentum.parameters(), network.parameters())
    for old, momentum, student in zip(before, *after, strict=True):
        torch.testing.assert_close(momentum, torch.lerp(old, student, 1 - objective.decay))


@pytest.mark.parametrize("precision", get_args(Precision))
def test_a_reference_network_computes_as_the_student_does_and_the_loss_does_not(
    precision: Precision, make_engine: Make
) -> None:
    engine = make_engine(objective="byol")
    kinds: dict[str, set[torch.dtype]] = {}

    def note(name: str) -> Callable[..., None]:
        return lambda module, inputs, outputs: kinds.setdefault(name, set()).update(part.dtype for part in outputs)

    objective, alignment = engine.parts.objective, engine.parts.alignment
    assert isinstance(objective, BYOL)
    assert isinstance(alignment, EmaTeacher)
    networks: dict[str, nn.Module] = {
        "student": engine.parts.network,
        "momentum": objective.momentum,
        "teacher": alignment.teacher,
        "aligner": alignment.aligner,
    }
    for name, network in networks.items():
        network.register_forward_hook(note(name))
    images = torch.zeros(6, 3, 16, 16, dtype=torch.uint8)
    loss, *_ = step_of(engine, precision=precision)(images, torch.arange(2), torch.arange(2, 6), torch.zeros(0))
    assert loss.dtype is torch.float32
    expected = torch.bfloat16 if precision == "bf16" else torch.float32
    assert kinds == {name: {expected} for name in networks}


def test_without_replay_there_is_no_alignment_to_report(make_engine: Make) -> None:
    images = torch.zeros(4, 3, 16, 16, dtype=torch.uint8)
    none = torch.zeros(0, dtype=torch.int64)
    objective, alignment, streamed, replayed = step_of(make_engine())(images, torch.arange(4), none, torch.zeros(0))
    assert torch.isfinite(objective)
    assert torch.isnan(alignment)
    assert (len(streamed), len(replayed)) == (4, 0)
