"""The batch socket: what do we train on?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from climb.memory import Memory


@dataclass(frozen=True, kw_only=True)
class TrainingBatch:
    """The images of one gradient step."""

    images: torch.Tensor
    """uint8 (n, 3, H, W), on the device."""
    is_replay: torch.Tensor
    """bool (n,), on the CPU: which rows come from the memory. Nothing depends on their order."""
    ids: torch.Tensor
    """int64 (r,), on the CPU: ids of the replay rows, in the order of those rows."""


BatchRule = Callable[[torch.Tensor, Memory | None, int], TrainingBatch]
"""(stream images, memory, images to replay) -> the batch of one pass."""


def stream_and_replay(stream: torch.Tensor, memory: Memory | None, replay_batch: int) -> TrainingBatch:
    """The stream mini-batch with a fresh draw from the memory, once it holds enough."""
    replay = memory.sample(replay_batch) if memory is not None else None
    if replay is None:
        none = torch.zeros(0, dtype=torch.int64)
        return TrainingBatch(images=stream, is_replay=torch.zeros(len(stream), dtype=torch.bool), ids=none)
    is_replay = torch.arange(len(stream) + len(replay.ids)) >= len(stream)
    return TrainingBatch(images=torch.cat([stream, replay.images]), is_replay=is_replay, ids=replay.ids)
