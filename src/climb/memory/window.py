"""The adaptive novelty threshold: a quantile of the last w nearest-centroid distances."""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Iterable


class DistanceWindow:
    """The last ``size`` distances, also kept sorted, so that the quantile is a look-up and not a sort.

    >>> window = DistanceWindow(size=3, quantile=0.5)
    >>> window.quantile
    nan
    >>> window.extend([0.9, 0.1, 0.3, 0.2])
    >>> window.quantile  # of 0.1, 0.3, 0.2
    0.2
    """

    def __init__(self, *, size: int, quantile: float) -> None:
        self._fraction = quantile
        self._arrived: deque[float] = deque(maxlen=size)
        self._sorted: list[float] = []

    def append(self, distance: float) -> None:
        """Take one more distance in, and the oldest out when the window is full."""
        if len(self._arrived) == self._arrived.maxlen:
            del self._sorted[bisect.bisect_left(self._sorted, self._arrived[0])]
        self._arrived.append(distance)
        bisect.insort(self._sorted, distance)

    def extend(self, distances: Iterable[float]) -> None:
        """`append` each."""
        for distance in distances:
            self.append(distance)

    @property
    def quantile(self) -> float:
        """Linearly interpolated quantile (index ``(n - 1) p``); nan while the window is empty."""
        if not self._sorted:
            return math.nan
        index = (len(self._sorted) - 1) * self._fraction
        low = math.floor(index)
        high = min(low + 1, len(self._sorted) - 1)
        return self._sorted[low] + (self._sorted[high] - self._sorted[low]) * (index - low)

    def __len__(self) -> int:
        return len(self._arrived)

    def distances(self) -> list[float]:
        """The distances in the order they arrived."""
        return list(self._arrived)

    def clear(self) -> None:
        """Forget every distance."""
        self._arrived.clear()
        self._sorted.clear()
