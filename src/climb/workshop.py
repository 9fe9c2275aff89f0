"""Where a method's parts are made: from the configuration, with the run's seed, on the run's device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import nn

from climb.alignment import EmaTeacher, Relation, Snapshot, StoredTargets
from climb.augment import Policy, common, simclr, simsiam
from climb.config import LearnerConfig
from climb.errors import unknown
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
from climb.plugins import load_plugins
from climb.seeds import torch_generator


@dataclass(frozen=True, kw_only=True)
class Choice:
    """An objective by name: its class, how it is made, the views it learns from, and the rates it starts from."""

    kind: type[Objective]
    make: Callable[[Workshop], Objective]
    views: Callable[[int], Policy]
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
        return find_objective(self.config.objective).make(self)

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


OBJECTIVES = {
    "simclr": Choice(kind=SimCLR, make=lambda w: SimCLR(w.config.temperature), views=simclr),
    "simsiam": Choice(
        kind=SimSiam,
        make=lambda w: SimSiam(w.head("init predictor")),
        views=simsiam,
        lr=0.2,  # both as in the paper's appendix
        alignment_weight=0.1,
    ),
    "byol": Choice(kind=BYOL, make=lambda w: BYOL(w.network, w.head("init predictor")), views=common),
    # Gradients of these two are 170 and 30 times SimCLR's: rates at which the first steps are about as long as with it.
    "barlow-twins": Choice(kind=BarlowTwins, make=lambda w: BarlowTwins(), views=common, lr=0.001),
    "vicreg": Choice(kind=VICReg, make=lambda w: VICReg(), views=common, lr=0.01),
}


def find_objective(name: str) -> Choice:
    """The objective called ``name``: one of ours, or one that an installed package enters."""
    if name not in OBJECTIVES:
        load_plugins()
    if name not in OBJECTIVES:
        raise unknown("objective", name, OBJECTIVES)
    return OBJECTIVES[name]
