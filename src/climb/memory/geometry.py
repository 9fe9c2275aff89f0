"""The geometry of one mini-batch, played forward on the host.

Algorithm 1 takes the images of a mini-batch one after another, and each may move a centroid before the next looks
for its nearest. Yet every centroid stays a linear combination of its old value and the mini-batch's embeddings, so
the inner products that one matrix product gives (embeddings with centroids, embeddings with each other) suffice to
follow all of it. One transfer to the host per mini-batch, however many images and centroids; a merge, which is rare,
waits for two more.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from climb.errors import ClimbError
from climb.precision import full_float32

Array = NDArray[np.float64]


class BatchGeometry:
    """Cosine distances between the embeddings of one mini-batch and centroids that move as it is inserted.

    >>> values = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    >>> geometry = BatchGeometry(values, values.norm(dim=1), torch.tensor([[1.0, 1.0], [0.0, 2.0]]))
    >>> geometry.create(1, 0)  # the first image opens centroid 1 ...
    >>> geometry.distances(1).round(4).tolist()  # ... which the second image sees
    [1.0, 0.2929]
    >>> geometry.nearest(1, np.array([True, False]))
    (0, 1.0)
    >>> geometry.flush()
    >>> values.tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """

    def __init__(self, values: torch.Tensor, norms: torch.Tensor, embeddings: torch.Tensor) -> None:
        self._values = values  # float32 (rows, d), on the device, written by `flush`
        self._device_norms = norms  # float32 (rows,), of the values, written with them
        self._embeddings = embeddings  # float32 (n, d), on the device
        n, rows = embeddings.shape[0], values.shape[0]
        packed = torch.zeros((n + 1, rows + n), dtype=torch.float32, device=values.device)
        with full_float32():
            torch.matmul(embeddings, values.T, out=packed[:n, :rows])
            torch.matmul(embeddings, embeddings.T, out=packed[:n, rows:])
            packed[n, :rows] = norms
        host = packed.cpu().numpy().astype(np.float64)  # the one synchronisation
        if not np.isfinite(host).all():
            raise ClimbError(
                "the memory was given embeddings with NaN or infinity: training has diverged; lower the learning rate"
            )
        self._dots: Array = host[:n, :rows]
        self._among: Array = host[:n, rows:]
        self._lengths: Array = np.sqrt(np.diagonal(self._among))  # of the embeddings
        self._norms: Array = host[n, :rows]  # of the centroids, as they move
        self._touched: dict[int, tuple[float, Array]] = {}

    def distances(self, image: int) -> Array:
        """Cosine distances of one image to all rows (rows,); rows that hold no centroid give what they give."""
        scale = self._norms * self._lengths[image]
        scale[scale == 0] = math.inf
        distances: Array = 1.0 - self._dots[image] / scale
        return distances

    def nearest(self, image: int, exists: NDArray[np.bool_]) -> tuple[int, float]:
        """The row nearest to an image, of those that ``exists`` (rows,) marks, and its distance; (-1, nan) of none."""
        if not exists.any():
            return -1, math.nan
        distances = np.where(exists, self.distances(image), np.inf)
        row = int(distances.argmin())
        return row, float(distances[row])

    def create(self, row: int, image: int) -> None:
        """The centroid in ``row`` starts anew at the image's embedding."""
        self._dots[:, row] = self._among[:, image]
        self._norms[row] = self._lengths[image]
        weights = np.zeros(len(self._lengths))
        weights[image] = 1.0
        self._touched[row] = (0.0, weights)

    def move(self, row: int, image: int, rate: float) -> None:
        """The centroid moves to ``(1 - rate) mu + rate z``."""
        stay = 1.0 - rate
        square = (
            (stay * self._norms[row]) ** 2
            + 2 * rate * stay * self._dots[image, row]
            + (rate * self._lengths[image]) ** 2
        )
        self._norms[row] = math.sqrt(max(square, 0.0))
        self._dots[:, row] = stay * self._dots[:, row] + rate * self._among[:, image]
        keep, weights = self._touched.get(row, (1.0, np.zeros(len(self._lengths))))
        weights = stay * weights
        weights[image] += rate
        self._touched[row] = (stay * keep, weights)

    def closest(self, rows: list[int]) -> tuple[int, int]:
        """The two most similar of ``rows``, in the order given: all pairs compared."""
        self.flush()
        index = torch.tensor(rows, device=self._values.device)
        with full_float32():
            unit = torch.nn.functional.normalize(self._values[index], dim=1)
            cosines = (unit @ unit.T).fill_diagonal_(-math.inf)
        one, other = sorted(divmod(int(cosines.argmax()), len(rows)))
        return rows[one], rows[other]

    def merge(self, survivor: int, absorbed: int) -> None:
        """The first centroid becomes the mean of both."""
        self.flush()
        inner = float(torch.dot(self._values[survivor], self._values[absorbed]))
        square = (self._norms[survivor] ** 2 + self._norms[absorbed] ** 2 + 2 * inner) / 4
        self._norms[survivor] = math.sqrt(max(square, 0.0))
        self._dots[:, survivor] = (self._dots[:, survivor] + self._dots[:, absorbed]) / 2
        mean = (self._values[survivor] + self._values[absorbed]) / 2
        self._values[survivor] = mean
        self._device_norms[survivor] = torch.linalg.vector_norm(mean)

    def flush(self) -> None:
        """Write the centroids that moved back to the device."""
        if not self._touched:
            return
        device = self._values.device
        keep = np.array([keep for keep, _ in self._touched.values()], dtype=np.float32)
        weights = np.stack([weights for _, weights in self._touched.values()]).astype(np.float32)
        rows = torch.tensor(list(self._touched)).to(device, non_blocking=True)
        old = self._values[rows] * torch.from_numpy(keep[:, None]).to(device, non_blocking=True)
        with full_float32():
            new = torch.from_numpy(weights).to(device, non_blocking=True) @ self._embeddings
        moved = old + new
        self._values.index_copy_(0, rows, moved)
        self._device_norms.index_copy_(0, rows, torch.linalg.vector_norm(moved, dim=1))
        self._touched.clear()
