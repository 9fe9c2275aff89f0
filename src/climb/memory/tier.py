"""One of the two stores of a memory with centroids, as it is at one moment."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A snapshot of the short-term or the long-term memory, one row a centroid.

    The oldest centroid comes first; in `ReferenceMemory`, that of the first slot.
    """

    values: torch.Tensor
    """float32 (n, d): the centroids, in the space of the embeddings."""
    counts: torch.Tensor
    """int64 (n,): images held."""
    ids: list[list[int]]
    """Ids of the images held; in the short-term memory the anchor comes first."""
    updated: torch.Tensor
    """int64 (n,): number of the last image taken in."""
    centroids: torch.Tensor
    """int64 (n,): the centroids' own ids, in order of creation over the life of the memory."""
