"""Features of the images in a memory that changes, as a reference for novelty: kept up to date a few at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from climb.errors import ClimbError
from climb.novelty.neighbours import find_neighbours, unit_features
from climb.novelty.scores import FEWEST, NEIGHBOURS, Scores, calibrated

_SPREAD = 2654435761  # Knuth's multiplier: spreads consecutive ids over 32 bits


class RunningReference:
    """Features of stored images by their ids. `score` compares others with them, as `ReferenceSet` does.

    If not all features fit into the bytes allowed, a fixed random share of the ids is kept.

    Args:
        capacity: most images that the memory stores.
        most_bytes: of all features.

    >>> reference = RunningReference(100, most_bytes=10**6)
    >>> features = torch.randn(40, 8, generator=torch.Generator().manual_seed(0)) + 4
    >>> reference.missing(range(40)) == list(range(40))
    True
    >>> reference.put(range(40), features, now=1)
    >>> scored = reference.score(-features[:1])
    >>> reference.drop_others(range(30))
    >>> len(reference), reference.oldest(2, before=2), round(scored.scores.item(), 2)
    (30, [0, 1], 1.0)
    """

    def __init__(self, capacity: int, *, most_bytes: int) -> None:
        self._capacity, self._most_bytes = capacity, most_bytes
        self._clear()

    def _clear(self) -> None:
        self._units = torch.zeros((0, 0))
        self._own = torch.zeros(0)  # distance of each row to the others
        self._put_at = np.zeros(0, dtype=np.int64)
        self._row_of: dict[int, int] = {}
        self._id_of: list[int] = []

    def __len__(self) -> int:
        return len(self._id_of)

    @property
    def ready(self) -> bool:
        """Whether there are enough images to compare with."""
        return len(self) >= FEWEST

    @property
    def nbytes(self) -> int:
        """Bytes of features, reserved space included."""
        return self._units.nbytes + self._own.nbytes

    def missing(self, stored: Iterable[int]) -> list[int]:
        """Ids of stored images whose features are wanted and not here."""
        most = self._most_rows()
        share = 2**32 if most >= self._capacity else int(2**32 * most / self._capacity)
        wanted = [each for each in stored if each not in self._row_of and each * _SPREAD % 2**32 < share]
        return wanted[: max(0, most - len(self))]

    def drop_others(self, stored: Iterable[int]) -> None:
        """Forget images that are no longer stored."""
        for gone in self._row_of.keys() - set(stored):
            # The last row moves into the gap.
            row, last = self._row_of.pop(gone), len(self._id_of) - 1
            moved = self._id_of.pop()
            if row != last:
                self._units[row], self._own[row], self._put_at[row] = (
                    self._units[last],
                    self._own[last],
                    self._put_at[last],
                )
                self._id_of[row], self._row_of[moved] = moved, row

    def put(self, ids: Sequence[int], features: Tensor, *, now: int) -> None:
        """Set the features (n, f) of stored images at time ``now``."""
        if not len(ids):
            return
        units = unit_features(features).cpu()
        if not bool(torch.isfinite(units).all()):
            raise ClimbError("features of stored images are not finite: the encoder has diverged")
        if self._units.shape[1] != units.shape[1]:
            self._clear()
            room = min(self._capacity, max(FEWEST, self._most_bytes // (4 * units.shape[1])))
            self._units = torch.zeros((room, units.shape[1]))
            self._own, self._put_at = torch.zeros(room), np.zeros(room, dtype=np.int64)
        rows = []
        for each in ids:
            if each not in self._row_of:
                if len(self) == len(self._units):
                    raise ClimbError(f"{len(self)} features are kept, the most that may be; drop some first")
                self._row_of[each] = len(self._id_of)
                self._id_of.append(each)
            rows.append(self._row_of[each])
        self._units[rows] = units
        self._put_at[rows] = now
        held = self._units[: len(self)]
        if len(self) > NEIGHBOURS:
            # Each finds itself first; its own distance comes from the next ones.
            found = find_neighbours(units, held, NEIGHBOURS + 1).distances
            self._own[rows] = found[:, 1:].mean(dim=1)

    def oldest(self, n: int, *, before: int) -> list[int]:
        """At most ``n`` ids whose features were put first, and before this time."""
        times = self._put_at[: len(self)]
        order = np.argsort(times, kind="stable")[:n]
        return [self._id_of[row] for row in order.tolist() if times[row] < before]

    def count(self, *, before: int) -> int:
        """Number of images with an id below ``before``."""
        return sum(each < before for each in self._id_of)

    def score(self, features: Tensor, *, before: int | None = None) -> Scores:
        """The novelty of images with these features (m, f). ``nearest`` contains ids.

        ``before`` compares with images of lower ids only.
        """
        ids = torch.tensor(self._id_of, dtype=torch.int64)
        held, own = self._units[: len(self)], self._own[: len(self)]
        if before is not None:
            earlier = ids < before
            ids, held, own = ids[earlier], held[earlier], own[earlier]
        found = find_neighbours(unit_features(features).cpu(), held, NEIGHBOURS)
        distances = found.distances.mean(dim=1)
        scores = calibrated(distances, own.sort().values)
        return Scores(scores=scores, distances=distances, nearest=ids[found.indices[:, 0]])

    def _most_rows(self) -> int:
        return len(self._units) if len(self._units) else self._capacity
