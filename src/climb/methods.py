"""Named methods: each is a choice of four parts (memory, batch, objective, alignment) and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from climb.alignment import EmaTeacher
from climb.config import LearnerConfig
from climb.engine import Parts, stream_and_replay
from climb.errors import unknown
from climb.memory import CentroidMemory, FifoMemory, ReferenceMemory, ReservoirMemory
from climb.nets import Network, bottleneck
from climb.objectives import SimCLR
from climb.seeds import torch_generator


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What a method builds its parts from."""

    config: LearnerConfig
    network: Network
    seed: int
    device: torch.device

    def centroid(self) -> CentroidMemory | ReferenceMemory:
        """CLIMB's memory."""
        memory = self.config.memory
        return (ReferenceMemory if self.config.memory_faults else CentroidMemory)(
            *self._sizes,
            stm_centroids=memory.short_term,
            ltm_centroids=memory.long_term,
            images_per_centroid=memory.images_per_centroid,
            window=memory.window,
            novelty_percentile=memory.novelty_percentile,
            stm_rate=memory.stm_rate,
            ltm_accept=memory.ltm_accept,
            prune=memory.prune,
            seed=self.seed,
            device=self.device,
        )

    def fifo(self) -> FifoMemory:
        """The last N images."""
        return FifoMemory(*self._sizes, seed=self.seed, device=self.device)

    def reservoir(self) -> ReservoirMemory:
        """A uniform sample of the stream."""
        return ReservoirMemory(*self._sizes, seed=self.seed, device=self.device)

    def simclr(self) -> SimCLR:
        """The contrastive objective."""
        return SimCLR(self.config.temperature)

    def ema_teacher(self) -> EmaTeacher:
        """Distillation from the averaged network."""
        generator = torch_generator(self.seed, "init aligner")
        return EmaTeacher(
            self.network,
            bottleneck(self.network.embedding_dim, self.network.bottleneck_dim, generator=generator),
            decay=self.config.ema_decay,
            period=self.config.ema_period,
            train_aligner=self.config.train_aligner,
        )

    @property
    def _sizes(self) -> tuple[int, tuple[int, int, int], int]:
        side = self.config.image_size
        return (self.config.memory.capacity, (3, side, side), self.network.embedding_dim)


Method = Callable[[Workshop], Parts]
METHODS: dict[str, Method] = {}


def method(name: str) -> Callable[[Method], Method]:
    """Register a method under a name."""

    def register(build: Method) -> Method:
        METHODS[name] = build
        return build

    return register


def build_parts(workshop: Workshop) -> Parts:
    """The parts of the method that the configuration names."""
    name = workshop.config.method
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name](workshop)


@method("climb")
def climb(w: Workshop) -> Parts:
    """CLIMB: centroid memory, replay, SimCLR, distillation from an EMA teacher."""
    return Parts(
        network=w.network,
        memory=w.centroid(),
        batch=stream_and_replay,
        objective=w.simclr(),
        alignment=w.ema_teacher(),
    )


@method("cla-e")
def cla_e(w: Workshop) -> Parts:
    """CLA-E (Cignoni et al., 2025): CLIMB's learner with the last N images as memory."""
    return Parts(
        network=w.network, memory=w.fifo(), batch=stream_and_replay, objective=w.simclr(), alignment=w.ema_teacher()
    )


@method("er-fifo")
def er_fifo(w: Workshop) -> Parts:
    """Experience replay of the last N images, no alignment."""
    return Parts(network=w.network, memory=w.fifo(), batch=stream_and_replay, objective=w.simclr(), alignment=None)


@method("er-reservoir")
def er_reservoir(w: Workshop) -> Parts:
    """Experience replay of a uniform sample of the stream, no alignment."""
    return Parts(network=w.network, memory=w.reservoir(), batch=stream_and_replay, objective=w.simclr(), alignment=None)
