"""The similarities that `ReferenceMemory` merges by: computed once, and stale whenever a value moves afterwards."""

from __future__ import annotations

import math

import torch


class CachedSimilarities:
    """Cosines between long-term centroids as they were when each row was last computed.

    >>> cache = CachedSimilarities()
    >>> cache.add(torch.tensor([[1.0, 0.0]]))
    >>> cache.add(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    >>> cache.cosines
    tensor([[1.0000, 0.7071],
            [0.7071, 1.0000]])
    """

    def __init__(self) -> None:
        self.cosines = torch.zeros(0, 0)

    def add(self, values: torch.Tensor) -> None:
        """The last of ``values`` (n, d) is new; only its row is computed."""
        old = self.cosines
        self.cosines = torch.ones(len(values), len(values))
        self.cosines[:-1, :-1] = old
        self.compute(values, len(values) - 1)

    def compute(self, values: torch.Tensor, row: int) -> None:
        """Compute one row from ``values`` (n, d) as they are now."""
        fresh = torch.nn.functional.cosine_similarity(values, values[row : row + 1], dim=1)
        self.cosines[row] = fresh
        self.cosines[:, row] = fresh

    def closest(self) -> tuple[int, int]:
        """The two rows with the highest cosine, in order."""
        pairs = self.cosines.clone().fill_diagonal_(-math.inf)
        one, other = sorted(divmod(int(pairs.argmax()), len(pairs)))
        return one, other

    def drop(self, row: int) -> None:
        """Forget one row."""
        rest = torch.tensor([other for other in range(len(self.cosines)) if other != row])
        self.cosines = self.cosines[rest][:, rest]
