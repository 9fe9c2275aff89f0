"""One learner across processes: the group, how rows are split, and batch norms and images that all share.

Started by ``torchrun --nproc-per-node R -m climb run ...``. Every process (rank) sees the whole mini-batch, draws the
same random numbers and takes the same decisions. The work and the pixels are split: each rank sends its own rows
through the networks, and stores the images whose id modulo R is its rank.
"""

from __future__ import annotations

from climb.parallel.batch_norm import GlobalBatchNorm, share_statistics
from climb.parallel.group import SINGLE, Group, is_first, joined, own_device
from climb.parallel.rows import Share, chunk, collect, share_gradients, spread
from climb.parallel.shards import ShardedStore

__all__ = [
    "SINGLE",
    "GlobalBatchNorm",
    "Group",
    "ShardedStore",
    "Share",
    "chunk",
    "collect",
    "is_first",
    "joined",
    "own_device",
    "share_gradients",
    "share_statistics",
    "spread",
]
