"""The two directions in which points differ most."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def principal_plane(points: Array) -> tuple[Array, float]:
    """Points (n, d) in their two principal directions (n, 2), and the share of the variance that lies in these.

    The sign of a direction is free; it is chosen so that its largest part is positive, and the same points always
    give the same picture.

    >>> plane, share = principal_plane(np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0], [4.0, 0.0, 1.0]]))
    >>> plane[:, 0].round(3).tolist(), round(share, 3)
    ([-2.0, 0.0, 2.0], 1.0)
    """
    centred = points - points.mean(axis=0)
    if centred.shape[1] < 2:
        centred = np.pad(centred, ((0, 0), (0, 2 - centred.shape[1])))
    values, vectors = np.linalg.eigh(centred.T @ centred)
    axes = vectors[:, [-1, -2]]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    total = float(values.clip(min=0).sum())
    share = float(values[[-1, -2]].clip(min=0).sum()) / total if total > 0 else 0.0
    plane: Array = centred @ axes
    return plane, share
