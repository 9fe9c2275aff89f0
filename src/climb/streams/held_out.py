"""Which training images are set aside for validation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def held_out(
    labels: npt.NDArray[np.int64],
    share: float,
    generator: np.random.RandomState,
) -> npt.NDArray[np.bool_]:
    """A mask (n,) of the held-out images: of each class's images, ``share`` of them rounded down, at random.

    >>> labels = np.repeat([0, 1], [20, 30])
    >>> np.bincount(labels[held_out(labels, 0.1, np.random.RandomState(0))]).tolist()
    [2, 3]
    """
    mask = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        mask[generator.permutation(members)[: int(share * len(members))]] = True
    return mask
