"""Where a method's parts are made: from the configuration, with the run's seed, on the run's device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from climb.alignment import EmaTeacher
from climb.config import LearnerConfig
from climb.memory import CentroidMemory, FifoMemory, ReferenceMemory, ReservoirMemory
from climb.nets import Network, bottleneck, build_network
from climb.objectives import SimCLR
from climb.seeds import torch_generator


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What a method picks its parts from."""

    config: LearnerConfig
    seed: int
    device: torch.device

    @cached_property
    def network(self) -> Network:
        """The encoder and projector that are trained; one per workshop."""
        generator = torch_generator(self.seed, "init")
        return build_network(self.config.backbone, self.config.image_size, generator=generator)

    # -- memories ------------------------------------------------------------------------------------------------

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

    # -- objectives ----------------------------------------------------------------------------------------------

    def objective(self) -> SimCLR:
        """The objective that the configuration names."""
        return SimCLR(self.config.temperature)

    # -- alignments ----------------------------------------------------------------------------------------------

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
