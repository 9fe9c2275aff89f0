"""One fault of the released code alone, so that its price can be measured."""

from __future__ import annotations

import torch

from climb.memory.centroid import CentroidMemory
from climb.memory.ledger import STM


class SwappedRefreshMemory(CentroidMemory):
    """CLIMB's memory, but replayed images refresh each other's centroids.

    A replayed batch is long-term images and then short-term ones; the released code reads its embeddings as if
    the short-term ones came first, so that short-term centroids are drawn toward long-term images and the other way
    round. `ReferenceMemory` has this fault among all the others.
    """

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Step 6 with embeddings (n, d) that belong to other images."""
        row_of, tier = self._ledger.row_of, self._ledger.tier
        held = [(place, row_of[image]) for place, image in enumerate(ids.tolist()) if image in row_of]
        short = [place for place, row in held if tier[row] == STM]
        long = [place for place, row in held if tier[row] != STM]
        super().refresh(ids[short + long], embeddings[[place for place, _ in held]])
