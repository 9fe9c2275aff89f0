"""`PartFactory`: builds the parts of a method from a configuration, a seed, a device and a process group."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import nn

from climb.alignment import EmaTeacher, Relation, Snapshot, StoredTargets
from climb.errors import InputError
from climb.memory import (
    MEMORIES,
    CentroidMemory,
    FifoMemory,
    Memory,
    MinRedMemory,
    PartAndSelectMemory,
    ReservoirMemory,
)
from climb.methods.objectives import find_objective
from climb.nets import Network, bottleneck, build_network, plain_projector, weights_of
from climb.objectives import Objective, Osiris, Scale
from climb.parallel import SINGLE, Group
from climb.seeds import torch_generator
from climb.settings.config import LearnerConfig


@dataclass(frozen=True, kw_only=True)
class PartFactory:
    """What a method builds its parts with."""

    config: LearnerConfig
    seed: int
    device: torch.device
    group: Group = SINGLE
    restored: bool = False
    """True if the caller loads a saved state into the parts: start weights are not read."""

    module: nn.Module | None = None
    """The network that a caller passed as an object, which the encoder is a copy of."""

    @cached_property
    def network(self) -> Network:
        """The encoder and projector that are trained; the same object at every access."""
        generator, kind = torch_generator(self.seed, "init"), find_objective(self.config.objective).kind
        size, norm = self.config.image_size, kind.final_norm
        start = None if self.restored else weights_of(self.config)
        weights = None if start is None else start.state
        options: dict[str, Any] = {"generator": generator, "final_norm": norm, "weights": weights}
        return build_network(self.config.backbone, size, module=self.module, **options)

    # -- memories ------------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> tuple[int, tuple[int, int, int], int]:
        """Positional arguments of a memory: capacity, shape of an image, length of an embedding."""
        side = self.config.image_size
        return (self.config.memory.capacity, (3, side, side), self.network.embedding_dim)

    def memory(self, kind: str | type[Memory], *, embedding_dim: int | None = None, **options: Any) -> Memory:
        """A memory of a class or registered name, for this run's capacity, images, seed, device and processes.

        Args:
            kind: its class or registered name. A class that declares ``replaces`` may take its place.
            embedding_dim: length of an embedding; None takes the projector's.
            options: further arguments of the constructor.
        """
        named = MEMORIES.find(kind) if isinstance(kind, str) else kind
        capacity, shape, width = self.sizes
        build: Any = substitute(named, self.config)
        if self.group.size > 1 and getattr(build, "sharded", False):
            options["group"] = self.group
        width = embedding_dim or width
        memory: Memory = build(capacity, shape, width, seed=self.seed, device=self.device, **options)
        return memory

    def centroid(self, prune: Literal["anchor", "selective"] | None = None) -> Memory:
        """CLIMB's memory."""
        memory = self.config.memory
        options = {**vars(memory), "stm_centroids": memory.short_term, "ltm_centroids": memory.long_term}
        del options["capacity"]  # every memory gets it
        return self.memory(CentroidMemory, **options | {"prune": prune or memory.prune})

    def fifo(self, embedding_rate: float | None = None) -> Memory:
        """The last N images; with a rate, also a running average of their embeddings."""
        return self.memory(FifoMemory, embedding_rate=embedding_rate)

    def reservoir(self) -> Memory:
        """A uniform sample of the stream."""
        return self.memory(ReservoirMemory)

    def minred(self, inserts: Literal["before", "after"] = "before") -> Memory:
        """The least redundant images."""
        return self.memory(MinRedMemory, inserts=inserts)

    def part_and_select(self) -> Memory:
        """The images that cover the encoder's feature space most evenly."""
        return self.memory(PartAndSelectMemory, embedding_dim=self.network.feature_dim)

    # -- objectives ----------------------------------------------------------------------------------------------

    def objective(self) -> Objective:
        """The objective that the configuration names."""
        spec = find_objective(self.config.objective)
        objective = spec.make(self)
        if not isinstance(objective, spec.kind):
            raise InputError(
                f"objective '{spec.name}' is registered as a {spec.kind.__name__}, but its function makes a "
                f"{type(objective).__name__}; it must return an Objective, of the class that is given as kind"
            )
        return objective

    def with_objective(self, name: str) -> PartFactory:
        """A factory like this one for another objective."""
        return replace(self, config=replace(self.config, objective=name))

    def osiris(self) -> Osiris:
        """Three losses on two heads; the second head is a copy of the projector."""
        return Osiris(copy.deepcopy(self.network.projector))

    def scale(self) -> Scale:
        """SCALE's pseudo-supervised contrast."""
        return Scale()

    def scale_network(self) -> Network:
        """The encoder with SCALE's own projector."""
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
        """Distillation from the averaged network. ``always_trained`` ignores the setting ``train_aligner``."""
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
        """Distillation from the network at the end of the last task."""
        return Snapshot(self.network, self.head("init aligner"))

    def relation(self, network: Network) -> Relation:
        """Distillation of the similarities within a batch."""
        return Relation(network)

    def head(self, name: str) -> nn.Sequential:
        """A fresh aligner or predictor; ``name`` names its random generator."""
        generator = torch_generator(self.seed, name)
        return bottleneck(self.network.embedding_dim, self.network.bottleneck_dim, generator=generator)


def substitutes(kind: type) -> dict[str, type[Memory]]:
    """The registered memories that take the place of ``kind``, by the setting of the learner that switches them on.

    Each declares ``replaces = (kind, setting)``. The first whose setting is true is taken.
    """
    declared = [(other, vars(other).get("replaces", (None, ""))) for other in MEMORIES.values()]
    return {setting: other for other, (replaced, setting) in declared if replaced is kind}


def substitute(kind: type[Memory], config: LearnerConfig) -> type[Memory]:
    """The class to build for ``kind`` under a configuration: a substitute that is switched on, or ``kind``."""
    return next((other for setting, other in substitutes(kind).items() if getattr(config, setting)), kind)
