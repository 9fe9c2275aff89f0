"""`check_method` passes what keeps its promises, and names the one that is broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from climb.alignment import Alignment, EmaTeacher
from climb.alignment.frozen_copy import copy_state, frozen_copy
from climb.checks import check_method, trial
from climb.checks.descent import _falls
from climb.config import LearnerConfig
from climb.engine import BatchRule, MemoryOnly, Mixed, Parts, StreamAndReplay
from climb.engine.patching import Patching
from climb.engine.pcmc import Pcmc, Sleep, build_pcmc
from climb.errors import InputError
from climb.memory import FifoMemory, InsertReport
from climb.methods import METHODS, Method
from climb.nets import Encoded, Network, plain_projector
from climb.objectives import BYOL, Objective, SimCLR
from climb.seeds import numpy_generator
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


class AllNew(StreamAndReplay):
    """Replays, and then calls every row one of the stream."""

    def mix(self, views: torch.Tensor, stream_rows: torch.Tensor, replay_rows: torch.Tensor, *, drawn: Any) -> Mixed:
        return Mixed(views=views, stream_rows=torch.arange(views.shape[1]), replay_rows=replay_rows[:0])


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


class Growing(FifoMemory):
    """Makes room when it is full."""

    @property
    def capacity(self) -> int:
        return super().capacity + (len(self) == super().capacity)


def flat(kind: type[FifoMemory], w: Workshop) -> Parts:
    memory = kind(*w.sizes, seed=w.seed)
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
                    network=w.network, memory=w.fifo(), batch=AllNew(), objective=SimCLR(), alignment=Dreamy()
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
        (made(lambda w: flat(Growing, w)), "the memory's capacity is 61; configured are 60"),
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


# -- what does nothing, is not counted, or is not known to the state ---------------------------------------------------


def contrast(encoded: Encoded) -> torch.Tensor:
    return SimCLR().loss(encoded.embeddings[0], encoded.embeddings[1])


class Near(Alignment):
    """Holds embeddings of replayed images to those of the network before the mini-batch: sound."""

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


class Unheld(Near):
    """Is computed without gradient."""

    @torch.no_grad()
    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return super().forward(encoded, objective)


class Zero(Alignment):
    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return torch.zeros(())


class HeadAlone(Alignment):
    """Is about its own head alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(128, 128)

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        return self.head(encoded.embeddings.detach().flatten(0, 1)).square().mean()


class Uncounted(EmaTeacher):
    def forwards(self, rows: int, replay_rows: int) -> int:
        return 0


class Uncounting(BYOL):
    def forwards(self, rows: int) -> int:
        return 0


class Overcounting(BYOL):
    def forwards(self, rows: int) -> int:
        return 1000 * rows


class OneNumber(nn.Module):
    """A projector to one line, behind a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 128).unsqueeze(0))
        self.norm = nn.BatchNorm1d(1, affine=False)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        line: torch.Tensor = self.norm(nn.functional.linear(features, self.weight))
        return line.expand(-1, 64)


class FarApart(Objective):
    """Contrast by distance, which one number suffices for."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        logits = -torch.cdist(*encoded.embeddings).square() / encoded.embeddings.shape[2] / 0.2
        return nn.functional.cross_entropy(logits, torch.arange(len(logits)))


def with_network(network: Network, objective: Objective) -> Parts:
    return Parts(network=network, memory=None, batch=BatchRule(), objective=objective, alignment=None)


def on_one_line(w: Workshop) -> Parts:
    sizes = {"feature_dim": 128, "embedding_dim": 64, "bottleneck_dim": 32}
    return with_network(Network(w.network.encoder, OneNumber(), **sizes), FarApart())


class Detached(Objective):
    def forward(self, encoded: Encoded) -> torch.Tensor:
        return contrast(encoded).detach()


class Asked(Objective):
    """Counts how often its state is taken."""

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


class Reseeding(FifoMemory):
    """Draws anew once its state is taken."""

    def state_dict(self) -> dict[str, Any]:
        self._replay = numpy_generator(int(self._replay.integers(2**31)), "again")
        return super().state_dict()


class Unseeded(Objective):
    def forward(self, encoded: Encoded) -> torch.Tensor:
        return contrast(encoded) + 0.01 * torch.rand(())


class Hidden(Objective):
    """Keeps what it should train in a plain list; ``parameter``: as torch does, or as a bare tensor."""

    def __init__(self, *, parameter: bool) -> None:
        super().__init__()
        weight = torch.eye(128)
        self.heads = [nn.Parameter(weight) if parameter else weight.requires_grad_()]

    def forward(self, encoded: Encoded) -> torch.Tensor:
        return SimCLR().loss(*(encoded.features @ self.heads[0])) + contrast(encoded)


class Late(Objective):
    """Registers a buffer when it is first needed."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        if not hasattr(self, "mean"):
            self.register_buffer("mean", torch.zeros(128))
        return contrast(encoded)


class Meddling(Objective):
    """Shrinks the student; ``data``: where a tensor's version does not tell."""

    def __init__(self, *, data: bool) -> None:
        super().__init__()
        self.data = data

    def forward(self, encoded: Encoded) -> torch.Tensor:
        return contrast(encoded)

    @torch.no_grad()
    def after_step(self, student: nn.Module) -> None:
        for parameter in student.parameters():
            (parameter.data if self.data else parameter).mul_(0.999)


def unlike(w: Workshop) -> Parts:
    memory = FifoMemory(60, (3, 8, 8), 128, seed=w.seed)
    return Parts(network=w.network, memory=memory, batch=StreamAndReplay(), objective=SimCLR(), alignment=None)


def byol(kind: type[BYOL]) -> Method:
    return with_objective(lambda w: kind(w.network, w.head("init predictor")))


NOTHING = "the alignment holds nothing: none of its 54 losses, times its weight, had a gradient"


@pytest.mark.parametrize(
    ("method", "promise"),
    [
        (with_alignment(lambda w: Unheld(w.network)), NOTHING),
        (with_alignment(lambda w: Zero()), NOTHING),
        (with_alignment(lambda w: HeadAlone()), NOTHING),
        (replace(with_alignment(lambda w: Near(w.network)), alignment_weight=0.0), NOTHING),
        (
            with_alignment(lambda w: Uncounted(w.network, w.head("init aligner"))),
            "forward_only grew by 0 in a mini-batch in which networks saw 48 views or images without a gradient",
        ),
        (byol(Uncounting), "forward_only grew by 0 in a mini-batch in which networks saw 100 views"),
        (byol(Overcounting), "forward_only grew by 50000 in a mini-batch in which networks saw 100 views"),
        (made(on_one_line), r"the embeddings have collapsed: .* effective rank, .* to 1\.00, and must be 1\.5 or more"),
        (
            made(lambda w: replace(flat(FifoMemory, w), objective=Detached(), alignment=w.ema_teacher(rows="all"))),
            r"the objective's loss does not fall: 20 steps on the same views left it at \S+, a constant",
        ),
        (with_objective(lambda w: Asked()), "after taking the state the next objective loss is .* nobody took it"),
        (made(lambda w: flat(Reseeding, w)), "after taking the state the next objective loss is"),
        (with_objective(lambda w: Unseeded()), "two engines of one seed differ: in mini-batch 1 the objective loss is"),
        (with_objective(lambda w: Hidden(parameter=True)), r"shape \(128, 128\) that the optimiser does not hold"),
        (with_objective(lambda w: Hidden(parameter=False)), r"shape \(128, 128\) that the optimiser does not hold"),
        (
            with_objective(lambda w: Detached()),
            "the objective's loss has no gradient: it is a constant, or was detached",
        ),
        (with_objective(lambda w: Late()), "the saved state cannot be loaded into .* not learnt yet: RuntimeError: "),
        (made(unlike), r"mini-batch 1, of 10 images, cannot be learnt from: the memory stores .* \(n, 3, 8, 8\)"),
        (made(lambda w: {}["parts"]), "the method cannot be built: KeyError: 'parts'"),
        (with_objective(lambda w: Meddling(data=False)), r"network\.encoder\.\S+ changed after the optimiser's step"),
        (with_objective(lambda w: Meddling(data=True)), r"network\.encoder\.\S+ changed after the optimiser's step"),
    ],
)
def test_what_only_seems_to_work_is_named(method: Method, promise: str) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_method(method)


def test_what_a_part_raises_is_kept() -> None:
    with pytest.raises(AssertionError) as raised:
        check_method(made(lambda w: {}["parts"]))
    assert isinstance(raised.value.__cause__, KeyError)


# -- unusual, and sound ------------------------------------------------------------------------------------------------


class Grouped(nn.Module):
    """An encoder of group norms: it starts slowly, and may go up for a step."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.second = nn.Conv2d(3, 32, 3, 2, 1), nn.Conv2d(32, 64, 3, 2, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, 32), nn.GroupNorm(8, 64)])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = nn.functional.mish(self.norms[0](self.first(images)))
        return nn.functional.mish(self.norms[1](self.second(maps))).mean((2, 3))


def grouped(w: Workshop) -> Parts:
    projector = plain_projector(64, 64, 32, generator=torch.Generator().manual_seed(w.seed))
    network = Network(Grouped(), projector, feature_dim=64, embedding_dim=32, bottleneck_dim=16)
    return replace(with_network(network, SimCLR()), memory=w.fifo(), batch=StreamAndReplay())


class PastAlone(Objective):
    """Learns from stored images alone."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        if len(encoded.replay_rows) == 0:
            return 0 * encoded.embeddings.sum()
        return SimCLR().loss(*encoded.embeddings.index_select(1, encoded.replay_rows))


class Pairwise(Objective):
    """A sigmoid for each pair, summed, and that three times: it overshoots at a rate of 0.03."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(-2.0))

    def forward(self, encoded: Encoded) -> torch.Tensor:
        first, second = nn.functional.normalize(encoded.embeddings, dim=2)
        logits = first @ second.T * self.scale.exp() + self.shift
        return -3 * nn.functional.logsigmoid(logits * (2 * torch.eye(len(logits)) - 1)).sum() / len(logits)


class Penalised(Objective):
    """Asks for a gradient of images that it makes for one loss alone."""

    def forward(self, encoded: Encoded) -> torch.Tensor:
        noise = torch.full_like(encoded.embeddings, 0.01).requires_grad_()
        return SimCLR().loss(*(encoded.embeddings + noise))


class InGradMode(Near):
    """Asks a frozen network where gradients are on, of all rows, and keeps it in a plain list."""

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


class Elastic(Alignment):
    """Holds weights, not embeddings, to those of the last mini-batch."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.student, self.past = [student], frozen_copy(student)

    def forward(self, encoded: Encoded, objective: torch.Tensor) -> torch.Tensor:
        pairs = zip(self.student[0].parameters(), self.past.parameters(), strict=True)
        return torch.stack([(now - past).square().sum() for now, past in pairs]).sum()

    def before_batch(self, student: nn.Module) -> None:
        copy_state(student, into=self.past)


class Blurring(Objective):
    """Looks at images through a module that makes images of images, and at pixels without one: neither counts."""

    def __init__(self) -> None:
        super().__init__()
        self.blur, self.flat = nn.Conv2d(3, 3, 3).requires_grad_(False), nn.Flatten()
        nn.init.constant_(self.blur.weight, 1 / 27)
        nn.init.zeros_(self.blur.bias)

    def forward(self, encoded: Encoded) -> torch.Tensor:
        brightness = self.flat(self.blur(encoded.views[0])).mean(1)
        return contrast(encoded) * (1 + 0.01 * brightness.sigmoid().mean())


class Both(nn.Module):
    """Two networks in one, each asked once."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.one, self.two = frozen_copy(student), frozen_copy(student)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = self.one(images), self.two(images)
        return first[0] + second[0], first[1] + second[1]


class OfTwo(Near):
    def __init__(self, student: nn.Module) -> None:
        super().__init__(student)
        self.past = Both(student)  # type: ignore[assignment]

    def forwards(self, rows: int, replay_rows: int) -> int:
        return 4 * replay_rows

    def before_batch(self, student: nn.Module) -> None:
        copy_state(student, into=self.past.one)  # type: ignore[arg-type]


class InGrey(Near):
    """Asks a network of one channel, which also gives a picture back."""

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


def far_from_zero(w: Workshop) -> Parts:
    """A projector without a norm, whose embeddings share an offset: to `Health`, they lie too close together."""
    network = w.scale_network()
    nn.init.constant_(network.projector.get_parameter("2.bias"), 0.5)
    return replace(with_network(network, SimCLR()), memory=w.fifo(), batch=StreamAndReplay())


SOUND = {
    "a slow start": made(grouped),
    "a slow start at a low rate": replace(made(grouped), lr=0.03),
    "stored images alone": made(lambda w: replace(flat(FifoMemory, w), objective=PastAlone())),
    "stored images alone, and no others": made(
        lambda w: replace(flat(FifoMemory, w), memory=w.minred(), objective=PastAlone(), batch=MemoryOnly())
    ),
    "an overshooting loss": made(lambda w: replace(flat(FifoMemory, w), objective=Pairwise())),
    "a leaf for one loss": with_objective(lambda w: Penalised()),
    "modules that are no networks": with_objective(lambda w: Blurring()),
    "an alignment without a head": with_alignment(lambda w: Near(w.network)),
    "a frozen network where gradients are on": with_alignment(lambda w: InGradMode(w.network)),
    "two networks in one": with_alignment(lambda w: OfTwo(w.network)),
    "a network that sees no colour and paints": with_alignment(lambda w: InGrey(w.network)),
    "an alignment of weights": with_alignment(lambda w: Elastic(w.network)),
    "a network of the objective's": byol(BYOL),
    "embeddings that start close together": replace(made(far_from_zero), lr=0.003),
}


@pytest.mark.parametrize("method", SOUND.values(), ids=SOUND)
def test_what_is_unusual_and_sound_passes(method: Method) -> None:
    check_method(method)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("climb", {"refresh_mode": "updated"}),
        ("climb-minred", {"embed_mode": "train", "refresh_mode": "updated"}),
        ("cla-r", {"embed_mode": "eval"}),
    ],
)
def test_every_forward_of_the_engine_itself_is_counted(
    name: str, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("climb.checks.method.CONFIG", replace(trial.CONFIG, **changed))
    check_method(name)


def test_a_slow_start_and_a_bump_fall() -> None:
    slow = [3.553, 3.509, 3.477, 3.435, 3.44, 3.46, 3.45, 3.43, 3.44, 3.42]
    assert _falls([*slow, 3.458, 3.398, 3.404, 3.332, 3.269, 3.192, 3.161, 3.101, 3.052, 2.98])
    assert _falls([*slow, 3.458, 3.398, 3.404, 3.332, 3.269, 3.192, 3.161, 3.101, 3.052, 3.7])
    assert not _falls([*slow, *reversed(slow)])


def test_noise_falls_in_less_than_one_case_of_a_thousand() -> None:
    noise = torch.randn(10_000, 20, generator=torch.Generator().manual_seed(0))
    assert sum(map(_falls, noise.tolist())) < 10
