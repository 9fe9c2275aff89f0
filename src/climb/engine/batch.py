"""The batch socket: what do we train on?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from climb.config import LearnerConfig
from climb.memory import Memory
from climb.parallel import Share


@dataclass(frozen=True, kw_only=True)
class TrainingBatch:
    """The images of one gradient step."""

    images: torch.Tensor
    """uint8 (n, 3, H, W), on the device."""
    is_replay: torch.Tensor
    """bool (n,), on the CPU: which rows come from the memory. Nothing depends on their order."""
    ids: torch.Tensor
    """int64 (r,), on the CPU: ids of the replay rows, in the order of those rows."""
    targets: torch.Tensor | None = None
    """float32 (r, d): what the memory stores of the replay rows, if it does."""


@dataclass(frozen=True, kw_only=True)
class Mixed:
    """The views that reach the network, and which of their rows are which."""

    views: torch.Tensor
    """float (2, m, 3, H, W); where processes share the batch, those of this process's rows."""
    stream_rows: torch.Tensor
    """int64 (s,)."""
    replay_rows: torch.Tensor
    """int64 (r,)."""
    share: Share | None = None
    """Which rows ``views`` has, where processes share the batch."""


class BatchRule:
    """What the passes over one stream mini-batch train on: here, the mini-batch alone (``finetune``)."""

    has_stream_rows: ClassVar[bool] = True
    """Whether its batches hold images of the stream; some objectives learn from no others."""

    def rows(self, config: LearnerConfig) -> int:
        """Rows of a full batch that reach the network; decides how many passes make an equal budget."""
        return config.stream_batch

    def trained(self, images: int, replayed: int) -> int:
        """Rows that reach the network, of a batch of so many images; fewer than the images where they are mixed."""
        return images

    def __call__(
        self, stream: torch.Tensor, memory: Memory | None, config: LearnerConfig, pass_number: int
    ) -> TrainingBatch:
        """The batch of one pass over the stream images (n, 3, H, W)."""
        return stream_alone(stream)

    def draw(self, replayed: int, generator: torch.Generator) -> torch.Tensor | None:
        """What is random about the mixing of a batch with so many replayed images: by default, nothing.

        Drawn once for the whole batch, on the generator's device, also where processes share the batch.
        """
        return None

    def mix(
        self,
        views: torch.Tensor,
        stream_rows: torch.Tensor,
        replay_rows: torch.Tensor,
        *,
        drawn: torch.Tensor | None,
    ) -> Mixed:
        """What the network sees of the views (2, n, 3, H, W): by default, all of them as they are.

        Draws nothing by itself, so that it can be compiled; ``drawn`` is what `draw` gave.
        """
        return Mixed(views=views, stream_rows=stream_rows, replay_rows=replay_rows)


class StreamAndReplay(BatchRule):
    """The stream mini-batch with a fresh draw from the memory, once it holds enough."""

    def rows(self, config: LearnerConfig) -> int:
        """Stream and replay."""
        return config.stream_batch + config.replay_batch

    def __call__(
        self, stream: torch.Tensor, memory: Memory | None, config: LearnerConfig, pass_number: int
    ) -> TrainingBatch:
        """Stream rows, then replay rows; stream rows alone while the memory holds too little."""
        replay = memory.sample(config.replay_batch) if memory is not None else None
        if replay is None:
            return stream_alone(stream)
        return TrainingBatch(
            images=torch.cat([stream, replay.images]),
            is_replay=torch.arange(len(stream) + len(replay.ids)) >= len(stream),
            ids=replay.ids,
            targets=replay.embeddings,
        )


def stream_alone(stream: torch.Tensor) -> TrainingBatch:
    """A batch without replay."""
    none = torch.zeros(0, dtype=torch.int64)
    return TrainingBatch(images=stream, is_replay=torch.zeros(len(stream), dtype=torch.bool), ids=none)
