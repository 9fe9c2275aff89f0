"""A slow and plain re-implementation of PCMC's memory, for comparison with the fast one.

Python lists of small objects, float64, one patch at a time; patches are only their numbers. It shares with
`PatchMemory` no code but the named generator, since both must draw the same random numbers.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from restatement import cosine, percentile

from climb.memory.contract import InsertReport
from climb.seeds import numpy_generator


@dataclass(eq=False)
class Group:
    """One centroid: its place, its value, the numbers of its patches (the first one first)."""

    place: int
    value: np.ndarray
    patches: list[int]


class PatchRestatement:
    """PCMC's memory, patch numbers only. A centroid that takes the place of another inherits its place."""

    def __init__(
        self,
        stm_centroids: int,
        *,
        patches_per_centroid: int,
        window: int,
        novelty_percentile: float,
        least_patches: int,
        thinning: float = 4.0,
        seed: int = 0,
    ) -> None:
        self.L = stm_centroids
        self.M = patches_per_centroid
        self.m = least_patches
        self.w = window
        self.p = novelty_percentile
        self.q = thinning
        self.rng = numpy_generator(seed, "memory")
        self.stm: list[Group] = []  # in order of creation
        self.ltm: list[Group] = []
        self.distances: list[float] = []
        self.threshold = math.nan
        self.stm_was_full = False
        self.seen = 0

    def insert(self, embeddings: np.ndarray) -> InsertReport:
        """One mini-batch, patch by patch."""
        happened: Counter[str] = Counter()
        for z in np.asarray(embeddings, dtype=np.float64):
            self.take(self.seen, z, happened)
            self.seen += 1
        return InsertReport(**happened)

    def take(self, patch: int, z: np.ndarray, happened: Counter[str]) -> None:
        nearest, distance = None, math.nan
        for group in sorted(self.stm + self.ltm, key=lambda g: g.place):
            candidate = 1.0 - cosine(z, group.value)
            if nearest is None or candidate < distance:
                nearest, distance = group, candidate
        if nearest is None or not self.stm_was_full or distance > self.threshold:
            self.open(patch, z, happened)
        elif nearest in self.stm:
            nearest.patches.append(patch)
            happened["joined"] += 1
            if len(nearest.patches) == self.M:
                self.stm.remove(nearest)
                self.ltm.append(nearest)
                happened["promoted"] += 1
        else:
            happened["rejected"] += 1
        if nearest is not None:
            self.distances = [*self.distances, distance][-self.w :]
            self.threshold = percentile(self.distances, self.p)

    def open(self, patch: int, z: np.ndarray, happened: Counter[str]) -> None:
        place = len(self.stm) + len(self.ltm)
        if len(self.stm) == self.L:
            place = self.stm.pop(0).place
            happened["evicted"] += 1
        self.stm.append(Group(place, z, [patch]))
        happened["novel"] += 1
        if len(self.stm) == self.L:
            self.stm_was_full = True

    def rehearsal(self) -> list[int]:
        """Numbers of the patches that a sleep trains on."""
        twice = [group for group in self.stm if len(group.patches) > 1]
        return [patch for group in twice + self.ltm for patch in group.patches]

    def after_sleep(self, embeddings: np.ndarray) -> int:
        """``embeddings`` are those of all patches by number, as the encoder sees them now."""
        now = np.asarray(embeddings, dtype=np.float64)
        before = self.total
        for group in self.stm:
            group.patches = group.patches[:1]
        for group in sorted(self.ltm, key=lambda g: g.place):
            spare = max(0, len(group.patches) - self.m)
            if self.rng.random() < (spare / (self.M - self.m)) ** self.q:
                pairs = itertools.combinations(group.patches, 2)
                _, later = max(pairs, key=lambda pair: cosine(now[pair[0]], now[pair[1]]))
                group.patches.remove(later)
        for group in self.stm + self.ltm:
            group.value = now[group.patches[0]]
        return before - self.total

    @property
    def total(self) -> int:
        """Patches stored in both memories."""
        return sum(len(group.patches) for group in self.stm + self.ltm)
