"""Boundaries between tasks that are not sharp."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt


def blurring(
    orders: Sequence[npt.NDArray[np.int64]], blur: int, generator: np.random.RandomState
) -> list[npt.NDArray[np.int64]]:
    """``orders``, with the last ``blur`` images before each boundary and the first ``blur`` after it shuffled
    together.

    At most half a task takes part at either of its ends, so that no image crosses two boundaries. Every order
    keeps its length: the boundary stays where it was.

    >>> before, after = blurring([np.arange(6), np.arange(6, 12)], 2, np.random.RandomState(0))
    >>> before[:4].tolist(), sorted([*before[4:].tolist(), *after[:2].tolist()]), after[2:].tolist()
    ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11])
    """
    stream = np.concatenate(orders)
    boundary = 0
    for order, following in pairwise(orders):
        boundary += len(order)
        mixed = slice(boundary - min(blur, len(order) // 2), boundary + min(blur, len(following) // 2))
        stream[mixed] = generator.permutation(stream[mixed])
    return np.split(stream, np.cumsum([len(order) for order in orders])[:-1])
