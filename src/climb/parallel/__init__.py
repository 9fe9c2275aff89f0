"""One learner across processes: who takes part, how rows are split, statistics and images that all share.

Started by ``torchrun --nproc-per-node R -m climb run ...``. Every process (rank) plays the same game with the same
random numbers: it knows the whole mini-batch, all centroids and every decision. What is split is the work and the
pixels: each rank sends its own rows through the networks, and keeps the stored images whose id, modulo R, is its rank.
"""

from __future__ import annotations

from climb.parallel.batch_norm import GlobalBatchNorm, share_statistics
from climb.parallel.gradients import share_gradients
from climb.parallel.group import Group, alone, current, is_first, joined, own_device
from climb.parallel.rows import Share, chunk, collect, spread
from climb.parallel.shards import ShardedStore, own_share_only

__all__ = [
    "GlobalBatchNorm",
    "Group",
    "ShardedStore",
    "Share",
    "alone",
    "chunk",
    "collect",
    "current",
    "is_first",
    "joined",
    "own_device",
    "own_share_only",
    "share_gradients",
    "share_statistics",
    "spread",
]
