"""Cosine distances within one mini-batch, computed on the host, and the novelty threshold.

Algorithm 1 processes the images of a mini-batch one by one, and each may move a centroid before the next one looks
up its nearest. Every centroid remains a linear combination of its old value and the embeddings of the mini-batch.
So the inner products of embeddings with centroids and with each other suffice to follow all moves. They take one
matrix product and one transfer to the host per mini-batch. A merge, which is rare, takes two more transfers.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray

from climb.memory.pairs import most_similar
from climb.memory.validate import check_finite
from climb.precision import full_float32

Array = NDArray[np.float64]


class BatchGeometry:
    """Cosine distances between the embeddings of one mini-batch and the centroids that they move.

    >>> values = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    >>> geometry = BatchGeometry(values, values.norm(dim=1), torch.tensor([[1.0, 1.0], [0.0, 2.0]]))
    >>> geometry.move(1, 0, rate=1.0)  # centroid 1 becomes the first embedding
    >>> geometry.distances(1).round(4).tolist()  # which the second image sees
    [1.0, 0.2929]
    >>> geometry.nearest(1, np.array([True, False]))
    (0, 1.0)
    >>> geometry.flush()
    >>> values.tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """

    def __init__(self, values: torch.Tensor, norms: torch.Tensor, embeddings: torch.Tensor) -> None:
        self._values = values  # float32 (rows, d), on the device, written by `flush`
        self._device_norms = norms  # float32 (rows,): norms of the values, written with them
        self._embeddings = embeddings  # float32 (n, d), on the device
        n, rows = embeddings.shape[0], values.shape[0]
        packed = torch.zeros((n + 1, rows + n), dtype=torch.float32, device=values.device)
        with full_float32():
            torch.matmul(embeddings, values.T, out=packed[:n, :rows])
            torch.matmul(embeddings, embeddings.T, out=packed[:n, rows:])
            packed[n, :rows] = norms
        host = packed.cpu().numpy().astype(np.float64)  # the only synchronisation
        check_finite(bool(np.isfinite(host).all()), "embeddings")
        self._dots: Array = host[:n, :rows]
        self._among: Array = host[:n, rows:]
        self._lengths: Array = np.sqrt(np.diagonal(self._among))  # of the embeddings
        self._norms: Array = host[n, :rows]  # of the centroids, as they move
        self._touched: dict[int, tuple[float, Array]] = {}

    def distances(self, image: int) -> Array:
        """Cosine distances of one image to all rows (rows,); undefined for rows without a centroid."""
        scale = self._norms * self._lengths[image]
        scale[scale == 0] = math.inf
        distances: Array = 1.0 - self._dots[image] / scale
        return distances

    def nearest(self, image: int, exists: NDArray[np.bool_]) -> tuple[int, float]:
        """The nearest row among those marked in ``exists`` (rows,), and its distance; (-1, nan) if none is marked."""
        if not exists.any():
            return -1, math.nan
        distances = np.where(exists, self.distances(image), np.inf)
        row = int(distances.argmin())
        return row, float(distances[row])

    def move(self, row: int, image: int, rate: float) -> None:
        """Move a centroid to ``(1 - rate) mu + rate z``; at rate 1, the row need not have been a centroid."""
        stay = 1.0 - rate
        norm, inner, length = self._norms[row], self._dots[image, row], self._lengths[image]
        square = (stay * norm) ** 2 + 2 * rate * stay * inner + (rate * length) ** 2
        self._norms[row] = math.sqrt(max(square, 0.0))
        self._dots[:, row] = stay * self._dots[:, row] + rate * self._among[:, image]
        keep, weights = self._touched.get(row, (1.0, np.zeros(len(self._lengths))))
        weights = stay * weights
        weights[image] += rate
        self._touched[row] = (stay * keep, weights)

    def closest(self, rows: list[int]) -> tuple[int, int]:
        """The two most similar of ``rows``, in their order; compares all pairs."""
        self.flush()
        index = torch.tensor(rows, device=self._values.device)
        with full_float32():
            unit = torch.nn.functional.normalize(self._values[index], dim=1)
            one, other = most_similar(unit @ unit.T)
        return rows[one], rows[other]

    def merge(self, survivor: int, absorbed: int) -> None:
        """Set the first centroid to the mean of both."""
        self.flush()
        inner = float(torch.dot(self._values[survivor], self._values[absorbed]))
        square = (self._norms[survivor] ** 2 + self._norms[absorbed] ** 2 + 2 * inner) / 4
        self._norms[survivor] = math.sqrt(max(square, 0.0))
        self._dots[:, survivor] = (self._dots[:, survivor] + self._dots[:, absorbed]) / 2
        mean = (self._values[survivor] + self._values[absorbed]) / 2
        self._values[survivor] = mean
        self._device_norms[survivor] = torch.linalg.vector_norm(mean)

    def flush(self) -> None:
        """Write moved centroids to the device."""
        if not self._touched:
            return
        device = self._values.device
        keep = np.array([keep for keep, _ in self._touched.values()], dtype=np.float32)
        weights = np.stack([weights for _, weights in self._touched.values()]).astype(np.float32)
        rows = torch.tensor(list(self._touched)).to(device, non_blocking=True)
        with full_float32():
            moved = torch.from_numpy(weights).to(device, non_blocking=True) @ self._embeddings
        moved += self._values[rows] * torch.from_numpy(keep[:, None]).to(device, non_blocking=True)
        self._values.index_copy_(0, rows, moved)
        self._device_norms.index_copy_(0, rows, torch.linalg.vector_norm(moved, dim=1))
        self._touched.clear()


class DistanceWindow:
    """The last ``size`` nearest-centroid distances; their quantile is the novelty threshold.

    The distances are also kept in order, so that the quantile is a look-up.

    >>> window = DistanceWindow(size=3, quantile=0.5)
    >>> window.quantile
    nan
    >>> window.restore([0.9, 0.1, 0.3, 0.2])
    >>> window.quantile  # of 0.1, 0.3, 0.2
    0.2
    """

    def __init__(self, *, size: int, quantile: float) -> None:
        self._fraction = quantile
        self._arrived: deque[float] = deque(maxlen=size)
        self._sorted: list[float] = []

    def append(self, distance: float) -> None:
        """Add a distance; a full window drops its oldest one."""
        if len(self._arrived) == self._arrived.maxlen:
            del self._sorted[bisect.bisect_left(self._sorted, self._arrived[0])]
        self._arrived.append(distance)
        bisect.insort(self._sorted, distance)

    def restore(self, distances: Iterable[float]) -> None:
        """Replace all distances."""
        self._arrived = deque(distances, maxlen=self._arrived.maxlen)
        self._sorted = sorted(self._arrived)

    @property
    def quantile(self) -> float:
        """Linearly interpolated quantile, at index ``(n - 1) p``; nan for an empty window."""
        if not self._sorted:
            return math.nan
        index = (len(self._sorted) - 1) * self._fraction
        low, high = math.floor(index), math.ceil(index)
        return self._sorted[low] + (self._sorted[high] - self._sorted[low]) * (index - low)

    def distances(self) -> list[float]:
        """The distances in order of arrival."""
        return list(self._arrived)
