"""A set of image ids that can be sampled: add, remove and draw in constant time each."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


class IdPool:
    """Ids in a dense list, so that a draw is an index; removal moves the last id into the gap.

    >>> pool = IdPool([3, 5, 8])
    >>> pool.remove(3)
    >>> sorted(pool.draw(2, np.random.default_rng(0)))
    [5, 8]
    >>> 3 in pool
    False
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.ids = list(ids)
        self._position = {image: position for position, image in enumerate(self.ids)}

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, image: int) -> bool:
        return image in self._position

    def add(self, image: int) -> None:
        """Put an id in."""
        self._position[image] = len(self.ids)
        self.ids.append(image)

    def remove(self, image: int) -> None:
        """Take an id out."""
        position = self._position.pop(image)
        last = self.ids.pop()
        if last != image:
            self.ids[position] = last
            self._position[last] = position

    def draw(self, n: int, generator: np.random.Generator) -> list[int]:
        """``n`` different ids, uniformly."""
        if n == 0:
            return []
        return [self.ids[position] for position in generator.choice(len(self.ids), size=n, replace=False)]
