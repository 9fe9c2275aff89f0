"""`check_method` passes what keeps its promises, and names the one that is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from climb.alignment import Alignment
from climb.checks import check_method
from climb.config import LearnerConfig
from climb.engine import BatchRule, Parts, StreamAndReplay
from climb.engine.patching import Patching
from climb.engine.pcmc import Pcmc, Sleep, build_pcmc
from climb.errors import InputError
from climb.memory import FifoMemory, InsertReport
from climb.methods import METHODS, Method
from climb.nets import Encoded
from climb.objectives import Objective, SimCLR
from climb.workshop import Workshop


def made(build: Callable[[Workshop], Parts]) -> Method:
    """A method that nobody registered."""
    return Method(name="broken", build=build, summary="", paper="", lr=0.1, alignment_weight=1.0)


def with_objective(make: Callable[[Workshop], Objective]) -> Method:
    return made(lambda w: Parts(network=w.network, memory=None, batch=BatchRule(), objective=make(w), alignment=None))


def with_alignment(make: Callable[[Workshop], Alignment]) -> Method:
    return made(
        lambda w: Parts(
            network=w.network, memory=w.fifo(), batch=StreamAndReplay(), objective=SimCLR(), alignment=make(w)
        )
    )


def impatient(config: Any, **place: Any) -> Pcmc:
    """PCMC that sleeps, and so learns, within the images that a check has."""
    sleep = Sleep(every=100, epochs=1, batch=64)
    patching = Patching(image=24, patch=12, stride=12)
    return build_pcmc(config, **place, sleep=sleep, patching=patching, stm_centroids=8)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_ours_pass(name: str) -> None:
    """The whole registry, so that nobody forgets one."""
    found = METHODS[name]
    check_method(replace(found, build=impatient) if name == "pcmc" else found)
    assert METHODS[name] is found


class ForgottenHead(Objective):
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
    """Pulls all embeddings to one direction; a batch norm behind them would not let it."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        target = torch.ones_like(encoded.embeddings)
        return 1 - torch.cosine_similarity(encoded.embeddings, target, dim=2).mean()


class Lost(Alignment):
    """Has no answer."""

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return encoded.embeddings.sum() * float("nan")


class Dreamy(Alignment):
    """Waits for what never comes."""

    needs_replay = True

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return encoded.embeddings.mean()


class Vector(Objective):
    def forward(self, encoded: Encoded) -> torch.Tensor:
        return encoded.embeddings.mean(2).mean(0)


class Wobbly(Objective):
    """Counts its calls where no state keeps the count."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, encoded: Encoded) -> torch.Tensor:
        self.calls += 1
        return SimCLR().loss(encoded.embeddings[0], encoded.embeddings[1]) * (1 + 0.01 * self.calls)


class Holding(Objective):
    """Holds the student, so that it would be trained twice."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.student = student

    def forward(self, encoded: Encoded) -> torch.Tensor:
        return SimCLR().loss(encoded.embeddings[0], encoded.embeddings[1])


class Understated(StreamAndReplay):
    """Says that it trains on fewer rows than it does."""

    def trained(self, images: int, replayed: int) -> int:
        return images - replayed


class Greedy(BatchRule):
    """Declares ten rows and trains on twenty."""

    def __call__(self, stream: torch.Tensor, *rest: Any) -> Any:
        return super().__call__(torch.cat([stream, stream]), *rest)


class Sparing(StreamAndReplay):
    """Declares 54 rows and trains on 18, so that one step in three is taken."""

    def rows(self, config: LearnerConfig) -> int:
        return config.passes * super().rows(config)


class Wasteful(StreamAndReplay):
    """Declares 18 rows and trains on 17."""

    def __call__(self, stream: torch.Tensor, *rest: Any) -> Any:
        return super().__call__(stream[1:], *rest)


class Noise(Objective):
    """A product with noise: nothing to learn, but a gradient for everything."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        seed = int(1000 * encoded.embeddings.detach().abs().sum())
        noise = torch.randn(encoded.embeddings.shape, generator=torch.Generator().manual_seed(seed))
        return (encoded.embeddings * noise).mean() + 1


class Margin(Objective):
    """Two views of an image closer than views of two images; nothing is left to do once they are."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        first, second = nn.functional.normalize(encoded.embeddings, dim=2)
        apart = (first - second.roll(1, 0)).square().sum(1)
        return ((first - second).square().sum(1) - apart).relu().mean()


class HonestNoise(Noise):
    """Says that its loss need not fall."""

    falls = False


class Refusing(FifoMemory):
    def insert(self, images: torch.Tensor, *_: Any, **__: Any) -> InsertReport:
        return InsertReport(rejected=len(images))


class Overfull(FifoMemory):
    def __len__(self) -> int:
        return super().__len__() + 1


def flat(kind: type[FifoMemory], w: Workshop, capacity: int = 60) -> Parts:
    memory = kind(capacity, (3, 16, 16), 128, seed=w.seed)
    return Parts(network=w.network, memory=memory, batch=StreamAndReplay(), objective=SimCLR(), alignment=None)


def collapsing(w: Workshop) -> Parts:
    network = w.scale_network()
    return Parts(network=network, memory=None, batch=BatchRule(), objective=Collapsing(), alignment=None)


def with_batch(rule: BatchRule) -> Method:
    return made(lambda w: Parts(network=w.network, memory=w.fifo(), batch=rule, objective=SimCLR(), alignment=None))


@pytest.mark.parametrize(
    ("method", "promise"),
    [
        (with_objective(lambda w: ForgottenHead()), r"objective\.head\.weight is trainable, but never moved"),
        (made(collapsing), "the embeddings have collapsed"),
        (with_objective(lambda w: Vector()), "the objective's loss must be a scalar tensor"),
        (with_objective(lambda w: Wobbly()), "after loading the state the next objective loss is"),
        (with_objective(lambda w: Holding(w.network)), "belongs to two parts; each must be trained once"),
        (with_alignment(lambda w: Lost()), "the alignment's loss is nan in its call number 1"),
        (
            made(
                lambda w: Parts(
                    network=w.network, memory=None, batch=BatchRule(), objective=SimCLR(), alignment=Dreamy()
                )
            ),
            "the alignment never had a say",
        ),
        (with_batch(Understated()), r"the budget counts \d+ backward passes; the network saw \d+ views"),
        (with_batch(Greedy()), "batches of 10 rows, as the batch rule declares, make at most"),
        (with_batch(Sparing()), r"360 backward passes in the last 10 steps; batches of 54 rows, .* make 1080"),
        (with_batch(Wasteful()), r"1020 backward passes in the last 30 steps; batches of 18 rows, .* make 1080"),
        (with_batch(BatchRule()), "the memory holds 60, and BatchRule made no batch with replay rows"),
        (made(lambda w: flat(Refusing, w)), "no stored image was replayed in 190 images: the memory holds 0"),
        (with_objective(lambda w: Noise()), "the objective's loss does not fall: 20 steps on the same views went"),
        (made(lambda w: flat(Overfull, w)), "61 images stored, the capacity is 60"),
        (made(lambda w: flat(FifoMemory, w, 61)), "the memory's capacity is 61; configured are 60"),
        (METHODS["pcmc"], "no gradient step was taken in 100 images"),
    ],
)
def test_a_broken_promise_is_named(method: Method, promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_method(method)
    assert "broken" not in METHODS


def test_a_loss_that_is_at_its_least_after_a_step_or_two_falls() -> None:
    check_method(with_objective(lambda w: Margin()))


def test_a_loss_that_says_it_need_not_fall_is_not_asked_to() -> None:
    check_method(with_objective(lambda w: HonestNoise()))


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match="did you mean 'climb'"):
        check_method("clim")


def test_a_memory_whose_place_is_not_saved_is_found() -> None:
    """At three capacities of images it would be back at its start."""

    class Ring(FifoMemory):
        place = 0

        def _slots(self, images: torch.Tensor, embed: Any) -> list[int]:
            places = [(self.place + number) % self.capacity for number in range(len(images))]
            self.place += len(images)
            return places

    ring = made(
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


def test_a_function_that_returns_nothing_is_told_what_to_return() -> None:
    with pytest.raises(AssertionError, match="behind method 'broken' gave NoneType; it must return its Parts"):
        check_method(made(lambda w: None))  # type: ignore[arg-type,return-value]
