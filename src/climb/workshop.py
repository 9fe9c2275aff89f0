"""Where a method's parts are made: from the configuration, with the run's seed, on the run's device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeVar

import torch
from torch import nn

from climb import augment
from climb.alignment import EmaTeacher, Relation, Snapshot, StoredTargets
from climb.config import LearnerConfig
from climb.errors import InputError
from climb.memory import (
    CentroidMemory,
    FifoMemory,
    MinRedMemory,
    PartAndSelectMemory,
    ReferenceMemory,
    ReservoirMemory,
    SwappedRefreshMemory,
)
from climb.nets import Network, bottleneck, build_network, plain_projector
from climb.objectives import BYOL, BarlowTwins, Objective, Osiris, Scale, SimCLR, SimSiam, VICReg
from climb.plugins import check_rates, check_words, find_registered, first_line, refuse_taken
from climb.seeds import torch_generator


@dataclass(frozen=True, kw_only=True)
class Choice:
    """An objective by name: its class, how it is made, the views it learns from, and the rates it starts from."""

    name: str
    kind: type[Objective]
    make: Callable[[Workshop], Objective]
    summary: str
    """What it is, in one line."""
    paper: str
    """Who proposed it."""
    views: Callable[[int], augment.Policy]
    lr: float | None = None
    """CLIMB's learning rate with it, and the highest of other methods; None: the same as with SimCLR."""
    alignment_weight: float | None = None
    """Weight of CLIMB's alignment beside it; None: the same as with SimCLR. Other methods keep theirs."""


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What a method picks its parts from."""

    config: LearnerConfig
    seed: int
    device: torch.device

    @cached_property
    def network(self) -> Network:
        """The encoder and projector that are trained; one per workshop."""
        return build_network(
            self.config.backbone,
            self.config.image_size,
            generator=torch_generator(self.seed, "init"),
            final_norm=find_objective(self.config.objective).kind.final_norm,
        )

    # -- memories ------------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> tuple[int, tuple[int, int, int], int]:
        """What memories are made with: capacity, shape of an image, length of an embedding."""
        side = self.config.image_size
        return (self.config.memory.capacity, (3, side, side), self.network.embedding_dim)

    def centroid(self, prune: Literal["anchor", "selective"] | None = None) -> CentroidMemory | ReferenceMemory:
        """CLIMB's memory."""
        memory = self.config.memory
        faulty = SwappedRefreshMemory if self.config.swapped_refresh else CentroidMemory
        return (ReferenceMemory if self.config.memory_faults else faulty)(
            *self.sizes,
            stm_centroids=memory.short_term,
            ltm_centroids=memory.long_term,
            images_per_centroid=memory.images_per_centroid,
            window=memory.window,
            novelty_percentile=memory.novelty_percentile,
            stm_rate=memory.stm_rate,
            ltm_accept=memory.ltm_accept,
            prune=prune or memory.prune,
            seed=self.seed,
            device=self.device,
        )

    def fifo(self, embedding_rate: float | None = None) -> FifoMemory:
        """The last N images, with a running average of their embeddings if a rate is given."""
        return FifoMemory(*self.sizes, embedding_rate=embedding_rate, seed=self.seed, device=self.device)

    def reservoir(self) -> ReservoirMemory:
        """A uniform sample of the stream."""
        return ReservoirMemory(*self.sizes, seed=self.seed, device=self.device)

    def minred(self, inserts: Literal["before", "after"] = "before") -> MinRedMemory:
        """The least redundant images."""
        return MinRedMemory(*self.sizes, inserts=inserts, seed=self.seed, device=self.device)

    def part_and_select(self) -> PartAndSelectMemory:
        """The images that spread widest in the encoder's features."""
        capacity, shape, _ = self.sizes
        return PartAndSelectMemory(capacity, shape, self.network.feature_dim, seed=self.seed, device=self.device)

    # -- objectives ----------------------------------------------------------------------------------------------

    def objective(self) -> Objective:
        """The objective that the configuration names."""
        chosen = find_objective(self.config.objective)
        made = chosen.make(self)
        if not isinstance(made, Objective):
            raise InputError(
                f"the function behind objective '{chosen.name}' gave {type(made).__name__}; it must return an Objective"
            )
        if not isinstance(made, chosen.kind):  # the network and `climb.impossible.check_config` go by the kind
            raise InputError(
                f"objective '{chosen.name}' is registered as a {chosen.kind.__name__}, but its function makes a "
                f"{type(made).__name__}; give its class as kind"
            )
        return made

    def with_objective(self, name: str) -> Workshop:
        """A workshop like this one for another objective: for a method that brings one by its name."""
        return replace(self, config=replace(self.config, objective=name))

    def osiris(self) -> Osiris:
        """Three losses on two heads; the second head is made like the first."""
        return Osiris(copy.deepcopy(self.network.projector))

    def scale(self) -> Scale:
        """SCALE's pseudo-supervised contrast."""
        return Scale()

    def scale_network(self) -> Network:
        """The encoder under SCALE's own projector."""
        width = self.network.feature_dim
        head = plain_projector(width, width, 128, generator=torch_generator(self.seed, "init projector"))
        return Network(
            self.network.encoder, head, feature_dim=width, embedding_dim=128, bottleneck_dim=self.network.bottleneck_dim
        )

    # -- alignments ----------------------------------------------------------------------------------------------

    def ema_teacher(
        self,
        *,
        decay: float | None = None,
        period: Literal["step", "batch"] | None = None,
        rows: Literal["replay", "all"] = "replay",
        always_trained: bool = False,
    ) -> EmaTeacher:
        """Distillation from the averaged network.

        ``always_trained``: the released code forgets to train CLIMB's aligner, and that fault can be switched on here;
        those of CLA it trains.
        """
        return EmaTeacher(
            self.network,
            self.head("init aligner"),
            decay=self.config.ema_decay if decay is None else decay,
            period=period or self.config.ema_period,
            train_aligner=self.config.train_aligner or always_trained,
            rows=rows,
        )

    def stored_targets(self) -> StoredTargets:
        """Distillation from embeddings that the memory stores."""
        return StoredTargets(self.head("init aligner"))

    def snapshot(self) -> Snapshot:
        """Distillation from the network at the last task's end."""
        return Snapshot(self.network, self.head("init aligner"))

    def relation(self, network: Network) -> Relation:
        """Distillation of the similarities within a batch."""
        return Relation(network)

    def head(self, name: str) -> nn.Sequential:
        """A fresh aligner or predictor."""
        generator = torch_generator(self.seed, name)
        return bottleneck(self.network.embedding_dim, self.network.bottleneck_dim, generator=generator)


# -- objectives by name --------------------------------------------------------------------------------------------

OBJECTIVES: dict[str, Choice] = {}

Make = TypeVar("Make", bound=Callable[[Workshop], Objective])


def objective(
    name: str,
    *,
    kind: type[Objective],
    paper: str,
    views: Callable[[int], augment.Policy],
    lr: float | None = None,
    alignment_weight: float | None = None,
) -> Callable[[Make], Make]:
    """Register an objective under a name; the first line of the function's docstring says what it is.

    The function takes a workshop and returns the objective, of the class ``kind``.

    >>> OBJECTIVES["vicreg"].summary
    'Views agree, and each number of an embedding varies and says something of its own.'
    """

    check_words("objective", name, paper=paper)
    check_rates("objective", name, lr=lr, alignment_weight=alignment_weight)
    if not (isinstance(kind, type) and issubclass(kind, Objective)):
        raise InputError(f"objective '{name}' has kind={kind!r}; it must be its class, derived from Objective")
    if not callable(views):
        raise InputError(
            f"objective '{name}' has views={views!r}; it must be a function from a side in pixels to a Policy, such as "
            "climb.augment.simclr"
        )

    def register(make: Make) -> Make:
        if name in OBJECTIVES:
            refuse_taken("an objective", name, OBJECTIVES[name].make, make)
        OBJECTIVES[name] = Choice(
            name=name,
            kind=kind,
            make=make,
            summary=first_line(make.__doc__) or name,
            paper=paper,
            views=views,
            lr=lr,
            alignment_weight=alignment_weight,
        )
        return make

    return register


def find_objective(name: str) -> Choice:
    """The objective called ``name``: one of ours, or one that an installed package registers.

    A package registers by the entry point group ``climb.methods``, whose modules use the `objective` decorator.
    """
    return find_registered("objective", name, OBJECTIVES)


@objective("simclr", kind=SimCLR, paper="Chen et al., 2020", views=augment.simclr)
def simclr(w: Workshop) -> SimCLR:
    """Each view finds the other view of its image among all views of the batch."""
    return SimCLR(w.config.temperature)


# Both rates as in the paper's appendix.
@objective("simsiam", kind=SimSiam, paper="Chen and He, 2021", views=augment.simsiam, lr=0.2, alignment_weight=0.1)
def simsiam(w: Workshop) -> SimSiam:
    """Two views predict each other; no negatives."""
    return SimSiam(w.head("init predictor"))


@objective("byol", kind=BYOL, paper="Grill et al., 2020", views=augment.common)
def byol(w: Workshop) -> BYOL:
    """Each view predicts what a slowly moving copy of the network says of the other view."""
    return BYOL(w.network, w.head("init predictor"))


# Gradients of these two are 170 and 30 times SimCLR's: rates at which the first steps are about as long as with it.
@objective("barlow-twins", kind=BarlowTwins, paper="Zbontar et al., 2021", views=augment.common, lr=0.001)
def barlow_twins(w: Workshop) -> BarlowTwins:
    """Views correlate number by number of their embeddings, and in no other way."""
    return BarlowTwins()


@objective("vicreg", kind=VICReg, paper="Bardes et al., 2022", views=augment.common, lr=0.01)
def vicreg(w: Workshop) -> VICReg:
    """Views agree, and each number of an embedding varies and says something of its own."""
    return VICReg()


# Views of these two, and the rate of the first, are those of the methods they come from. At the rate of SCALE, and at a
# tenth of it, the second learns nothing on the demo's stream with CLIMB's parts.
@objective("osiris", kind=Osiris, paper="Zhang et al., 2024", views=augment.common, lr=0.03)
def osiris(w: Workshop) -> Osiris:
    """One head learns the present, a second one holds past and present apart; three contrastive losses."""
    return w.osiris()


@objective("scale", kind=Scale, paper="Yu et al., 2023", views=augment.simclr, lr=0.001)
def scale(w: Workshop) -> Scale:
    """Stream images that the encoder finds alike are positives of each other, stored ones negatives only."""
    return w.scale()
