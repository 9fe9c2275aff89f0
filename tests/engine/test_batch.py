from __future__ import annotations

import torch

from climb.engine import StreamAndReplay
from climb.memory import FifoMemory
from climb.settings.config import LearnerConfig


def test_the_stream_alone_until_enough_is_stored() -> None:
    memory = FifoMemory(20, (3, 8, 8), 4)
    stream = torch.zeros(5, 3, 8, 8, dtype=torch.uint8)
    memory.insert(stream)
    for given in (memory, None):
        batch = StreamAndReplay()(stream, given, LearnerConfig(replay_batch=6), 0)
        assert torch.equal(batch.images, stream)
        assert batch.is_replay.tolist() == [False] * 5
        assert len(batch.ids) == 0


def test_replayed_rows_are_marked_and_carry_their_ids() -> None:
    memory = FifoMemory(20, (3, 8, 8), 4)
    stored = torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1).expand(10, 3, 8, 8)
    memory.insert(stored)
    batch = StreamAndReplay()(torch.full((5, 3, 8, 8), 99, dtype=torch.uint8), memory, LearnerConfig(replay_batch=6), 0)
    assert int(batch.is_replay.sum()) == 6
    assert (batch.images[~batch.is_replay] == 99).all()
    assert torch.equal(batch.images[batch.is_replay][:, 0, 0, 0].long(), batch.ids)
