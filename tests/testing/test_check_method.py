"""`check_method` accepts sound methods and names the contract that each faulty one violates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from climb.alignment import Alignment, EmaTeacher
from climb.alignment.contract import copy_state, frozen_copy
from climb.contrib.pcmc.engine import Pcmc, Sleep, build_pcmc
from climb.contrib.pcmc.patches import Patching
from climb.engine import BatchRule, MemoryOnly, Mixed, Parts, StreamAndReplay
from climb.errors import InputError
from climb.memory import FifoMemory, InsertReport
from climb.methods import METHODS, Method, PartFactory
from climb.nets import Encoded, Network, plain_projector
from climb.objectives import BYOL, Objective, SimCLR
from climb.seeds import numpy_generator
from climb.settings.config import LearnerConfig
from climb.testing import check_method, trial
from climb.testing.training import _decreases


def method_of(build: Callable[[PartFactory], Parts]) -> Method:
    """A method outside the registry."""
    return Method(name="broken", build=build, summary="", paper="", lr=0.1, alignment_weight=1.0)


def with_objective(make: Callable[[PartFactory], Objective]) -> Method:
    return method_of(
        lambda w: Parts(network=w.network, memory=None, batch=BatchRule(), objective=make(w), alignment=None)
    )


def with_alignment(make: Callable[[PartFactory], Alignment]) -> Method:
    return method_of(
        lambda w: Parts(
            network=w.network, memory=w.fifo(), batch=StreamAndReplay(), objective=SimCLR(), alignment=make(w)
        )
    )


def build_fast_pcmc(config: Any, **place: Any) -> Pcmc:
    """PCMC that sleeps, and so learns, within the images of a check."""
    sleep = Sleep(every=100, epochs=1, batch=64)
    patching = Patching(image=24, patch=12, stride=12)
    return build_pcmc(config, **place, sleep=sleep, patching=patching, stm_centroids=8)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_registered_method_passes(name: str) -> None:
    found = METHODS[name]
    check_method(replace(found, build=build_fast_pcmc) if name == "pcmc" else found)
    assert METHODS[name] is found


class UntrainedHead(Objective):
    """Its head's output gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(128, 128)

    def forward(self, encoded: Encoded) -> torch.Tensor:
        return (
            SimCLR().loss(encoded.embeddings[0], encoded.embeddings[1])
            + self.head(encoded.features.detach()).sum().detach()
        )


class Collapsing(Objective):
    """Pulls all embeddings to one direction, which a final batch norm would prevent."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        target = torch.ones_like(encoded.embeddings)
        return 1 - torch.cosine_similarity(encoded.embeddings, target, dim=2).mean()


class NanAlignment(Alignment):
    """Its loss is nan."""

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return encoded.embeddings.sum() * float("nan")


class NoReplayRows(StreamAndReplay):
    """Replays, but marks every row as a stream row."""

    def mix(self, views: torch.Tensor, stream_rows: torch.Tensor, replay_rows: torch.Tensor, *, drawn: Any) -> Mixed:
        return Mixed(views=views, stream_rows=torch.arange(views.shape[1]), replay_rows=replay_rows[:0])


class NeverCalled(Alignment):
    """Needs replay rows and receives none."""

    needs_replay = True

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return encoded.embeddings.mean()


class VectorLoss(Objective):
    def forward(self, encoded: Encoded) -> torch.Tensor:
        return encoded.embeddings.mean(2).mean(0)


class CountsCalls(Objective):
    """Its loss depends on a counter that is not in the state."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, encoded: Encoded) -> torch.Tensor:
        self.calls += 1
        return SimCLR().loss(encoded.embeddings[0], encoded.embeddings[1]) * (1 + 0.01 * self.calls)


class HoldsTheStudent(Objective):
    """Registers the student as a submodule, so that it would be trained twice."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.student = student

    def forward(self, encoded: Encoded) -> torch.Tensor:
        return SimCLR().loss(encoded.embeddings[0], encoded.embeddings[1])


class UndercountsRows(StreamAndReplay):
    """Declares fewer rows than it trains on."""

    def trained(self, images: int, replayed: int) -> int:
        return images - replayed


class TwiceTheRows(BatchRule):
    """Declares ten rows and trains on twenty."""

    def __call__(self, stream: torch.Tensor, *rest: Any) -> Any:
        return super().__call__(torch.cat([stream, stream]), *rest)


class ThirdOfTheRows(StreamAndReplay):
    """Declares 54 rows and trains on 18, so that one step in three is taken."""

    def rows(self, config: LearnerConfig) -> int:
        return config.passes * super().rows(config)


class OneRowLess(StreamAndReplay):
    """Declares 18 rows and trains on 17."""

    def __call__(self, stream: torch.Tensor, *rest: Any) -> Any:
        return super().__call__(stream[1:], *rest)


class Noise(Objective):
    """A product with noise: a gradient for all parameters, but nothing to learn."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        seed = int(1000 * encoded.embeddings.detach().abs().sum())
        noise = torch.randn(encoded.embeddings.shape, generator=torch.Generator().manual_seed(seed))
        return (encoded.embeddings * noise).mean() + 1


class MarginLoss(Objective):
    """A margin loss, which is zero once two views of an image are closer than views of two images."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        first, second = nn.functional.normalize(encoded.embeddings, dim=2)
        apart = (first - second.roll(1, 0)).square().sum(1)
        return ((first - second).square().sum(1) - apart).relu().mean()


class DeclaredNoise(Noise):
    """Declares that its loss need not decrease."""

    loss_decreases = False


class RejectsAll(FifoMemory):
    def insert(self, images: torch.Tensor, *_: Any, **__: Any) -> InsertReport:
        return InsertReport(rejected=len(images))


class ExceedsItsCapacity(FifoMemory):
    def __len__(self) -> int:
        return super().__len__() + 1


class RaisesItsCapacity(FifoMemory):
    """Raises its capacity when it is full."""

    @property
    def capacity(self) -> int:
        return super().capacity + (len(self) == super().capacity)


def flat(kind: type[FifoMemory], w: PartFactory) -> Parts:
    memory = kind(*w.sizes, seed=w.seed)
    return Parts(network=w.network, memory=memory, batch=StreamAndReplay(), objective=SimCLR(), alignment=None)


def collapsing(w: PartFactory) -> Parts:
    network = w.scale_network()
    return Parts(network=network, memory=None, batch=BatchRule(), objective=Collapsing(), alignment=None)


def with_batch(rule: BatchRule) -> Method:
    return method_of(
        lambda w: Parts(network=w.network, memory=w.fifo(), batch=rule, objective=SimCLR(), alignment=None)
    )


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (with_objective(lambda w: UntrainedHead()), r"objective\.head\.weight is trainable, but never moved"),
        (method_of(collapsing), "the embeddings have collapsed"),
        (with_objective(lambda w: VectorLoss()), "the objective's loss must be a scalar tensor"),
        (with_objective(lambda w: CountsCalls()), "after loading the state the next objective loss is"),
        (with_objective(lambda w: HoldsTheStudent(w.network)), "belongs to two parts; each must be trained once"),
        (with_alignment(lambda w: NanAlignment()), "the alignment's loss is nan in call number 1"),
        (
            method_of(
                lambda w: Parts(
                    network=w.network,
                    memory=w.fifo(),
                    batch=NoReplayRows(),
                    objective=SimCLR(),
                    alignment=NeverCalled(),
                )
            ),
            "the alignment was never called",
        ),
        (with_batch(UndercountsRows()), r"the budget counts \d+ backward passes; the network saw \d+ views"),
        (with_batch(TwiceTheRows()), "batches of 10 rows, as the batch rule declares, make at most"),
        (with_batch(ThirdOfTheRows()), r"360 backward passes in the last 10 steps; batches of 54 rows, .* make 1080"),
        (with_batch(OneRowLess()), r"1020 backward passes in the last 30 steps; batches of 18 rows, .* make 1080"),
        (with_batch(BatchRule()), "the memory holds 60, and BatchRule made no batch with replay rows"),
        (method_of(lambda w: flat(RejectsAll, w)), "no stored image was replayed in 190 images: the memory holds 0"),
        (with_objective(lambda w: Noise()), "the objective's loss does not decrease: 20 steps on the same views gave"),
        (method_of(lambda w: flat(ExceedsItsCapacity, w)), "ClimbError: 61 images stored, the capacity is 60"),
        (method_of(lambda w: flat(RaisesItsCapacity, w)), "the memory's capacity is 61; configured are 60"),
        (METHODS["pcmc"], "no gradient step was taken in 100 images"),
    ],
)
def test_a_violated_contract_is_named(method: Method, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_method(method)
    assert "broken" not in METHODS


def test_a_loss_that_is_minimal_after_a_step_or_two_passes() -> None:
    check_method(with_objective(lambda w: MarginLoss()))


def test_a_loss_that_need_not_decrease_is_not_checked() -> None:
    check_method(with_objective(lambda w: DeclaredNoise()))


def test_an_unknown_name_is_rejected() -> None:
    with pytest.raises(InputError, match="did you mean 'climb'"):
        check_method("clim")


def test_an_unsaved_ring_position_is_detected() -> None:
    """After three capacities of images the ring would be back at its start."""

    class Ring(FifoMemory):
        place = 0

        def _slots(self, images: torch.Tensor, embeddings: Any, embed: Any) -> list[int]:
            places = [(self.place + number) % self.capacity for number in range(len(images))]
            self.place += len(images)
            return places

    ring = method_of(
        lambda w: Parts(
            network=w.network,
            memory=Ring(*w.sizes, seed=w.seed),
            batch=StreamAndReplay(),
            objective=SimCLR(),
            alignment=None,
        )
    )
    with pytest.raises(AssertionError, match="after loading the state"):
        check_method(ring)


def test_a_method_must_return_its_parts() -> None:
    with pytest.raises(AssertionError, match="behind method 'broken' gave NoneType; it must return its Parts"):
        check_method(method_of(lambda w: None))  # type: ignore[arg-type,return-value]


# -- hidden faults -------------------------------------------------------------------------------------------------


def contrast(encoded: Encoded) -> torch.Tensor:
    return SimCLR().loss(encoded.embeddings[0], encoded.embeddings[1])


class FollowsThePast(Alignment):
    """A sound alignment with the network as it was before the mini-batch, on replayed images."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.past = frozen_copy(student)

    def asked(self, encoded: Encoded) -> torch.Tensor:
        return encoded.embedded_by(self.past, "replay")

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        now, past = encoded.embeddings.index_select(1, encoded.replay_rows), self.asked(encoded)
        return -nn.functional.cosine_similarity(now, past, dim=2).mean()

    def forwards(self, rows: int, replay_rows: int) -> int:
        return 2 * replay_rows

    def before_batch(self, student: nn.Module) -> None:
        copy_state(student, into=self.past)


class WithoutGradient(FollowsThePast):
    """Its loss is computed without gradient."""

    @torch.no_grad()
    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return super().forward(encoded, objective)


class ZeroLoss(Alignment):
    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return torch.zeros(())


class TrainsOnlyItsHead(Alignment):
    """Its loss depends only on its own head."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(128, 128)

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return self.head(encoded.embeddings.detach().flatten(0, 1)).square().mean()


class CountsNoTeacherForwards(EmaTeacher):
    def forwards(self, rows: int, replay_rows: int) -> int:
        return 0


class CountsNoForwards(BYOL):
    def forwards(self, rows: int) -> int:
        return 0


class CountsTooManyForwards(BYOL):
    def forwards(self, rows: int) -> int:
        return 1000 * rows


class OneNumber(nn.Module):
    """A projector to one dimension, with a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 128).unsqueeze(0))
        self.norm = nn.BatchNorm1d(1, affine=False)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        line: torch.Tensor = self.norm(nn.functional.linear(features, self.weight))
        return line.expand(-1, 64)


class ContrastByDistance(Objective):
    """Contrast by distance, for which one dimension suffices."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        logits = -torch.cdist(*encoded.embeddings).square() / encoded.embeddings.shape[2] / 0.2
        return nn.functional.cross_entropy(logits, torch.arange(len(logits)))


def with_network(network: Network, objective: Objective) -> Parts:
    return Parts(network=network, memory=None, batch=BatchRule(), objective=objective, alignment=None)


def on_one_line(w: PartFactory) -> Parts:
    sizes = {"feature_dim": 128, "embedding_dim": 64, "bottleneck_dim": 32}
    return with_network(Network(w.network.encoder, OneNumber(), **sizes), ContrastByDistance())


class Detached(Objective):
    def forward(self, encoded: Encoded) -> torch.Tensor:
        return contrast(encoded).detach()


class ChangesWhenSaved(Objective):
    """Its loss depends on how often its state is taken."""

    times: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("times", torch.zeros(()))

    def get_extra_state(self) -> torch.Tensor:
        self.times.add_(1)
        return self.times.clone()

    def set_extra_state(self, state: torch.Tensor) -> None:
        pass

    def forward(self, encoded: Encoded) -> torch.Tensor:
        return contrast(encoded) * (1 + 0.1 * self.times)


class ReseedsWhenSaved(FifoMemory):
    """Reseeds its draws when its state is taken."""

    def state_dict(self) -> dict[str, Any]:
        self._replay = numpy_generator(int(self._replay.integers(2**31)), "again")
        return super().state_dict()


class Unseeded(Objective):
    def forward(self, encoded: Encoded) -> torch.Tensor:
        return contrast(encoded) + 0.01 * torch.rand(())


class HiddenHead(Objective):
    """Keeps its head in a plain list, as a parameter or as a bare tensor."""

    def __init__(self, *, parameter: bool) -> None:
        super().__init__()
        weight = torch.eye(128)
        self.heads = [nn.Parameter(weight) if parameter else weight.requires_grad_()]

    def forward(self, encoded: Encoded) -> torch.Tensor:
        return SimCLR().loss(*(encoded.features @ self.heads[0])) + contrast(encoded)


class RegistersABufferLate(Objective):
    """Registers a buffer in its first forward."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        if not hasattr(self, "mean"):
            self.register_buffer("mean", torch.zeros(128))
        return contrast(encoded)


class ChangesStudent(Objective):
    """Shrinks the student; with ``data`` without a change of tensor versions."""

    def __init__(self, *, data: bool) -> None:
        super().__init__()
        self.data = data

    def forward(self, encoded: Encoded) -> torch.Tensor:
        return contrast(encoded)

    @torch.no_grad()
    def after_step(self, student: nn.Module) -> None:
        for parameter in student.parameters():
            (parameter.data if self.data else parameter).mul_(0.999)


def with_memory_of_other_images(w: PartFactory) -> Parts:
    memory = FifoMemory(60, (3, 8, 8), 128, seed=w.seed)
    return Parts(network=w.network, memory=memory, batch=StreamAndReplay(), objective=SimCLR(), alignment=None)


def byol(kind: type[BYOL]) -> Method:
    return with_objective(lambda w: kind(w.network, w.head("init predictor")))


NO_EFFECT = "the alignment has no effect: none of its 54 losses, times its weight, had a gradient"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (with_alignment(lambda w: WithoutGradient(w.network)), NO_EFFECT),
        (with_alignment(lambda w: ZeroLoss()), NO_EFFECT),
        (with_alignment(lambda w: TrainsOnlyItsHead()), NO_EFFECT),
        (replace(with_alignment(lambda w: FollowsThePast(w.network)), alignment_weight=0.0), NO_EFFECT),
        (
            with_alignment(lambda w: CountsNoTeacherForwards(w.network, w.head("init aligner"))),
            "forward_only grew by 0 in a mini-batch in which networks saw 48 views or images without a gradient",
        ),
        (byol(CountsNoForwards), "forward_only grew by 0 in a mini-batch in which networks saw 100 views"),
        (byol(CountsTooManyForwards), "forward_only grew by 50000 in a mini-batch in which networks saw 100 views"),
        (
            method_of(on_one_line),
            r"the embeddings have collapsed: .* effective rank .* to 1\.00, and must be at least 1\.5",
        ),
        (
            method_of(
                lambda w: replace(flat(FifoMemory, w), objective=Detached(), alignment=w.ema_teacher(rows="all"))
            ),
            r"the objective's loss does not decrease: 20 steps on the same views left it at \S+, a constant",
        ),
        (with_objective(lambda w: ChangesWhenSaved()), "after taking the state the next objective loss is .* without"),
        (method_of(lambda w: flat(ReseedsWhenSaved, w)), "after taking the state the next objective loss is"),
        (with_objective(lambda w: Unseeded()), "two engines of one seed differ: in mini-batch 1 the objective loss is"),
        (with_objective(lambda w: HiddenHead(parameter=True)), r"shape \(128, 128\) that the optimiser does not hold"),
        (with_objective(lambda w: HiddenHead(parameter=False)), r"shape \(128, 128\) that the optimiser does not hold"),
        (
            with_objective(lambda w: Detached()),
            "the objective's loss has no gradient: it is a constant, or was detached",
        ),
        (
            with_objective(lambda w: RegistersABufferLate()),
            r"(?s)a new engine cannot load the saved state: RuntimeError: .*, line \d+\)",
        ),
        (
            method_of(with_memory_of_other_images),
            r"mini-batch 1, of 10 images, cannot be learned from: InputError: the memory stores .* \(n, 3, 8, 8\)",
        ),
        (method_of(lambda w: {}["parts"]), r"cannot be built: KeyError: 'parts' \(.*test_check_method\.py, line \d+\)"),
        (with_objective(lambda w: ChangesStudent(data=False)), r"network\.encoder\.\S+ changed after the optimiser's"),
        (with_objective(lambda w: ChangesStudent(data=True)), r"network\.encoder\.\S+ changed after the optimiser's"),
    ],
)
def test_a_hidden_fault_is_named(method: Method, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_method(method)


def test_the_exception_of_a_part_is_the_cause() -> None:
    with pytest.raises(AssertionError) as raised:
        check_method(method_of(lambda w: {}["parts"]))
    assert isinstance(raised.value.__cause__, KeyError)


# -- unusual sound methods -----------------------------------------------------------------------------------------


class GroupNormEncoder(nn.Module):
    """An encoder with group norms: its loss starts slowly and may rise for a step."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.second = nn.Conv2d(3, 32, 3, 2, 1), nn.Conv2d(32, 64, 3, 2, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, 32), nn.GroupNorm(8, 64)])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = nn.functional.mish(self.norms[0](self.first(images)))
        return nn.functional.mish(self.norms[1](self.second(maps))).mean((2, 3))


def grouped(w: PartFactory) -> Parts:
    projector = plain_projector(64, 64, 32, generator=torch.Generator().manual_seed(w.seed))
    network = Network(GroupNormEncoder(), projector, feature_dim=64, embedding_dim=32, bottleneck_dim=16)
    return replace(with_network(network, SimCLR()), memory=w.fifo(), batch=StreamAndReplay())


class LearnsFromReplayOnly(Objective):
    """Its loss uses only replayed images."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        if len(encoded.replay_rows) == 0:
            return 0 * encoded.embeddings.sum()
        return SimCLR().loss(*encoded.embeddings.index_select(1, encoded.replay_rows))


class Pairwise(Objective):
    """Three times a sum of sigmoids of pairs: it overshoots at a rate of 0.03."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(-2.0))

    def forward(self, encoded: Encoded) -> torch.Tensor:
        first, second = nn.functional.normalize(encoded.embeddings, dim=2)
        logits = first @ second.T * self.scale.exp() + self.shift
        return -3 * nn.functional.logsigmoid(logits * (2 * torch.eye(len(logits)) - 1)).sum() / len(logits)


class GradientOfATemporary(Objective):
    """Uses a tensor with gradient that it makes for one loss only."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        noise = torch.full_like(encoded.embeddings, 0.01).requires_grad_()
        return SimCLR().loss(*(encoded.embeddings + noise))


class ForwardWithGradientsOn(FollowsThePast):
    """Calls a frozen network with gradients on, for all rows, and keeps it in a plain list."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__(student)
        self.networks = [self.past]
        del self.past

    def asked(self, encoded: Encoded) -> torch.Tensor:
        _, flat = self.networks[0](encoded.views.flatten(0, 1))
        return flat.unflatten(0, encoded.views.shape[:2]).index_select(1, encoded.replay_rows)

    def forwards(self, rows: int, replay_rows: int) -> int:
        return 2 * rows

    def before_batch(self, student: nn.Module) -> None:
        copy_state(student, into=self.networks[0])


class HoldsWeights(Alignment):
    """Aligns weights, not embeddings, with those of the last mini-batch."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.student, self.past = [student], frozen_copy(student)

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        pairs = zip(self.student[0].parameters(), self.past.parameters(), strict=True)
        return torch.stack([(now - past).square().sum() for now, past in pairs]).sum()

    def before_batch(self, student: nn.Module) -> None:
        copy_state(student, into=self.past)


class UsesModulesThatAreNoNetworks(Objective):
    """Calls a module from images to images, and one without parameters: neither is a network."""

    def __init__(self) -> None:
        super().__init__()
        self.blur, self.flat = nn.Conv2d(3, 3, 3).requires_grad_(False), nn.Flatten()
        nn.init.constant_(self.blur.weight, 1 / 27)
        nn.init.zeros_(self.blur.bias)

    def forward(self, encoded: Encoded) -> torch.Tensor:
        brightness = self.flat(self.blur(encoded.views[0])).mean(1)
        return contrast(encoded) * (1 + 0.01 * brightness.sigmoid().mean())


class TwoNetworks(nn.Module):
    """Two networks in one module, each called once."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.one, self.two = frozen_copy(student), frozen_copy(student)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = self.one(images), self.two(images)
        return first[0] + second[0], first[1] + second[1]


class FollowsTwoNetworks(FollowsThePast):
    def __init__(self, student: nn.Module) -> None:
        super().__init__(student)
        self.past = TwoNetworks(student)  # type: ignore[assignment]

    def forwards(self, rows: int, replay_rows: int) -> int:
        return 4 * replay_rows

    def before_batch(self, student: nn.Module) -> None:
        copy_state(student, into=self.past.one)  # type: ignore[arg-type]


class UsesAGreyNetwork(FollowsThePast):
    """Calls a network of one channel, which also returns an image."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__(student)
        self.look = nn.Conv2d(1, 128, 16).requires_grad_(False)
        self.paint = nn.Conv2d(1, 3, 1).requires_grad_(False)
        for weights in (*self.look.parameters(), *self.paint.parameters()):
            nn.init.normal_(weights, generator=torch.Generator().manual_seed(0))

        class Grey(nn.Module):
            def __init__(self, look: nn.Module, paint: nn.Module) -> None:
                super().__init__()
                self.look, self.paint = look, paint

            def forward(self, grey: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                return self.look(grey).flatten(1), self.paint(grey)

        self.grey = Grey(self.look, self.paint)

    def asked(self, encoded: Encoded) -> torch.Tensor:
        seen = encoded.views.index_select(1, encoded.replay_rows).mean(2, keepdim=True)
        said, _ = self.grey(seen.flatten(0, 1))
        return said.unflatten(0, seen.shape[:2])


def far_from_zero(w: PartFactory) -> Parts:
    """A projector without a norm, whose embeddings share an offset, so that `Health` finds a small spread."""
    network = w.scale_network()
    nn.init.constant_(network.projector.get_parameter("2.bias"), 0.5)
    return replace(with_network(network, SimCLR()), memory=w.fifo(), batch=StreamAndReplay())


SOUND = {
    "a slow start": method_of(grouped),
    "a slow start at a low rate": replace(method_of(grouped), lr=0.03),
    "stored images alone": method_of(lambda w: replace(flat(FifoMemory, w), objective=LearnsFromReplayOnly())),
    "stored images alone, and no others": method_of(
        lambda w: replace(flat(FifoMemory, w), memory=w.minred(), objective=LearnsFromReplayOnly(), batch=MemoryOnly())
    ),
    "an overshooting loss": method_of(lambda w: replace(flat(FifoMemory, w), objective=Pairwise())),
    "a leaf for one loss": with_objective(lambda w: GradientOfATemporary()),
    "modules that are no networks": with_objective(lambda w: UsesModulesThatAreNoNetworks()),
    "an alignment without a head": with_alignment(lambda w: FollowsThePast(w.network)),
    "a frozen network where gradients are on": with_alignment(lambda w: ForwardWithGradientsOn(w.network)),
    "two networks in one": with_alignment(lambda w: FollowsTwoNetworks(w.network)),
    "a network that sees no colour and paints": with_alignment(lambda w: UsesAGreyNetwork(w.network)),
    "an alignment of weights": with_alignment(lambda w: HoldsWeights(w.network)),
    "a network of the objective's": byol(BYOL),
    "embeddings that start close together": replace(method_of(far_from_zero), lr=0.003),
}


@pytest.mark.parametrize("method", SOUND.values(), ids=SOUND)
def test_an_unusual_sound_method_passes(method: Method) -> None:
    check_method(method)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("climb", {"refresh_mode": "updated"}),
        ("climb-minred", {"embed_mode": "train", "refresh_mode": "updated"}),
        ("cla-r", {"embed_mode": "eval"}),
    ],
)
def test_forwards_of_the_engine_are_counted(
    name: str, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climb.testing.method_contract.CONFIG", replace(trial.CONFIG, **changed))
    check_method(name)


def test_a_slow_start_and_a_bump_decrease() -> None:
    slow = [3.553, 3.509, 3.477, 3.435, 3.44, 3.46, 3.45, 3.43, 3.44, 3.42]
    assert _decreases([*slow, 3.458, 3.398, 3.404, 3.332, 3.269, 3.192, 3.161, 3.101, 3.052, 2.98])
    assert _decreases([*slow, 3.458, 3.398, 3.404, 3.332, 3.269, 3.192, 3.161, 3.101, 3.052, 3.7])
    assert not _decreases([*slow, *reversed(slow)])


def test_noise_decreases_in_less_than_one_case_in_a_thousand() -> None:
    noise = torch.randn(10_000, 20, generator=torch.Generator().manual_seed(0))
    assert sum(map(_decreases, noise.tolist())) < 10


def test_the_old_name_of_loss_decreases_warns() -> None:
    with pytest.warns(DeprecationWarning, match="falls is now loss_decreases"):

        class Older(Noise):
            falls = False

    assert not Older.loss_decreases
