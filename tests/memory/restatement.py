"""A slow and plain re-implementation of Algorithm 1 of the CLIMB paper, for comparison with the fast one.

Python lists of small objects, float64, one image at a time; images are only their numbers. It shares with
`CentroidMemory` no code but the named generator, since both must draw the same random numbers.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from climb.memory.contract import InsertReport
from climb.seeds import numpy_generator


@dataclass(eq=False)
class Centroid:
    """One centroid: its value, the numbers of its images (the anchor first), when an image last joined."""

    id: int
    value: np.ndarray
    images: list[int]
    updated: int


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of two vectors, 0 if one of them is zero."""
    norms = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    return float(a @ b) / norms if norms > 0 else 0.0


def percentile(values: list[float], p: float) -> float:
    """The p-quantile with linear interpolation at index (n - 1) p."""
    ordered = sorted(values)
    index = (len(ordered) - 1) * p
    below = math.floor(index)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (index - below) * (ordered[above] - ordered[below])


class Restatement:
    """CLIMB's memory, image numbers only."""

    def __init__(
        self,
        capacity: int,
        *,
        stm_centroids: int,
        ltm_centroids: int,
        images_per_centroid: int,
        window: int,
        novelty_percentile: float,
        stm_rate: float = 0.1,
        ltm_accept: float = 0.5,
        prune: str = "anchor",
        seed: int = 0,
    ) -> None:
        self.N = capacity
        self.L = stm_centroids
        self.K = ltm_centroids
        self.M = images_per_centroid
        self.w = window
        self.p = novelty_percentile
        self.stm_rate = stm_rate
        self.ltm_accept = ltm_accept
        self.strategy = prune
        self.rng = numpy_generator(seed, "memory")
        self.stm: list[Centroid] = []
        self.ltm: list[Centroid] = []
        self.distances: list[float] = []
        self.threshold = math.nan
        self.stm_was_full = False
        self.seen = 0
        self.created = 0
        self.log: list[tuple[int, str, int]] = []

    def insert(self, embeddings: np.ndarray) -> InsertReport:
        """One mini-batch, image by image: steps 1 to 5 for one image before the next is looked at."""
        happened: Counter[str] = Counter()
        for z in np.asarray(embeddings, dtype=np.float64):
            self.take(self.seen, z, happened)
            self.seen += 1
        return InsertReport(**happened)

    def take(self, image: int, z: np.ndarray, happened: Counter[str]) -> None:
        # Step 1: nearest centroid, over both memories.
        nearest, distance = None, math.nan
        for centroid in self.stm + self.ltm:
            candidate = 1.0 - cosine(z, centroid.value)
            if nearest is None or candidate < distance:
                nearest, distance = centroid, candidate

        # Step 2: assignment.
        joined = None
        if nearest is None or not self.stm_was_full or distance > self.threshold:
            self.open(image, z, happened)
        elif nearest in self.stm:
            joined = nearest
            joined.images.append(image)
            joined.value = (1.0 - self.stm_rate) * joined.value + self.stm_rate * z
            joined.updated = image
            happened["joined"] += 1
        elif len(nearest.images) < self.M:
            nearest.images.append(image)
            nearest.updated = image
            happened["joined"] += 1
        elif self.rng.random() < self.ltm_accept:
            nearest.images[int(self.rng.integers(self.M))] = image
            nearest.updated = image
            happened["replaced"] += 1
        else:
            happened["rejected"] += 1

        # Step 3: threshold. The first image of all has no distance.
        if nearest is not None:
            self.distances = [*self.distances, distance][-self.w :]
            self.threshold = percentile(self.distances, self.p)

        # Step 4: promotion, and a merge when the long-term memory is over-full.
        if joined is not None and len(joined.images) == self.M:
            self.stm.remove(joined)
            self.ltm.append(joined)
            self.note(image, "promoted", joined.id, happened)
            if len(self.ltm) > self.K:
                self.merge(image, happened)

        # Step 5: pruning.
        if self.total > self.N:
            if self.strategy == "anchor":
                self.prune_to_anchors(image, happened)
            else:
                self.prune_selectively(image, happened)

    def open(self, image: int, z: np.ndarray, happened: Counter[str]) -> None:
        if len(self.stm) == self.L:
            oldest = min(self.stm, key=lambda c: c.updated)
            self.stm.remove(oldest)
            self.note(image, "evicted", oldest.id, happened)
        self.stm.append(Centroid(self.created, z, [image], image))
        self.log.append((image, "created", self.created))
        happened["novel"] += 1
        self.created += 1
        if len(self.stm) == self.L:
            self.stm_was_full = True

    def merge(self, image: int, happened: Counter[str]) -> None:
        pairs = [(a, b) for i, a in enumerate(self.ltm) for b in self.ltm[i + 1 :]]
        a, b = max(pairs, key=lambda pair: cosine(pair[0].value, pair[1].value))
        survivor, absorbed = (a, b) if a.id < b.id else (b, a)
        pool = survivor.images + absorbed.images
        if len(pool) > self.M:
            kept = sorted(self.rng.choice(len(pool), size=self.M, replace=False))
            pool = [pool[position] for position in kept]
        survivor.images = pool
        survivor.value = (survivor.value + absorbed.value) / 2.0
        survivor.updated = max(survivor.updated, absorbed.updated)
        self.ltm.remove(absorbed)
        self.note(image, "merged", absorbed.id, happened)

    def prune_to_anchors(self, image: int, happened: Counter[str]) -> None:
        for centroid in self.stm:
            centroid.images = centroid.images[:1]
        self.note(image, "pruned", -1, happened)

    def prune_selectively(self, image: int, happened: Counter[str]) -> None:
        first = min(self.stm, key=lambda c: c.updated)
        self.note(image, "pruned", first.id, happened)
        while self.total > self.N:
            oldest = min(self.stm, key=lambda c: c.updated)
            oldest.images.pop()
            if not oldest.images:
                self.stm.remove(oldest)
                self.note(image, "evicted", oldest.id, happened)

    def refresh(self, ids: list[int], embeddings: np.ndarray) -> None:
        """Step 6, closed form: the m replayed images of a centroid pull it by 0.5 / |E| each."""
        given = list(zip(ids, np.asarray(embeddings, dtype=np.float64), strict=True))
        for centroid in self.stm + self.ltm:
            images = set(centroid.images)
            own = [z for image, z in given if image in images]
            if own:
                rate = 0.5 / len(centroid.images)
                pull = rate * np.sum(own, axis=0)
                centroid.value = (1.0 - len(own) * rate) * centroid.value + pull

    def note(self, image: int, kind: str, centroid: int, happened: Counter[str]) -> None:
        self.log.append((image, kind, centroid))
        happened[kind] += 1

    @property
    def total(self) -> int:
        """Images stored in both memories."""
        return sum(len(centroid.images) for centroid in self.stm + self.ltm)
