"""State of `ReferenceMemory`: slots that count matches, the window of distances, and cached similarities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from climb.memory.geometry import DistanceWindow

TRANSFERRED = -1
"""The count of matches that marks a slot whose centroid was copied to the long-term memory."""


@dataclass(kw_only=True, eq=False)
class Slot:
    """One centroid: value float32 (d,) on the CPU, image ids, number of the last image, and count of matches."""

    id: int
    value: torch.Tensor
    images: list[int]
    updated: int
    matches: int


class NanWindow(DistanceWindow):
    """A window that may contain nan. Its quantile is nan until few enough are left above it.

    >>> window = NanWindow(size=4, quantile=0.5)
    >>> window.restore([np.nan, 0.3, np.nan, 0.1])
    >>> window.quantile
    nan
    >>> window.append(0.2)
    >>> window.quantile
    0.25
    """

    def append(self, distance: float) -> None:
        """Add a distance; a full window drops its oldest one."""
        self._arrived.append(distance)

    @property
    def quantile(self) -> float:
        """Linearly interpolated quantile; numpy sorts nan last."""
        self._sorted = np.sort(np.array(self._arrived)).tolist()
        return super().quantile


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
        self.cosines = F.pad(self.cosines, (0, 1, 0, 1), value=1.0)
        self.compute(values, len(values) - 1)

    def compute(self, values: torch.Tensor, row: int) -> None:
        """Compute one row from ``values`` (n, d) as they are now."""
        fresh = F.cosine_similarity(values, values[row : row + 1], dim=1)
        self.cosines[row] = fresh
        self.cosines[:, row] = fresh

    def drop(self, row: int) -> None:
        """Forget one row."""
        rest = torch.tensor([other for other in range(len(self.cosines)) if other != row])
        self.cosines = self.cosines[rest][:, rest]
