"""CLIMB's memory: at most N images, grouped around short-term and long-term centroids.

It implements Algorithm 1 of the paper for one image at a time: nearest centroid, assignment, threshold, promotion and
pruning are complete before the next image, so every bound holds after every image.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from climb.arguments import checked
from climb.errors import InputError
from climb.memory.contract import Space, memory
from climb.memory.geometry import BatchGeometry, DistanceWindow
from climb.memory.grouped import GroupedMemory
from climb.memory.ledger import FREE, LTM, STM, Event, EventLog, IdPool
from climb.memory.pairs import ClosestPair
from climb.memory.store import open_store
from climb.memory.validate import check_sizes
from climb.parallel import SINGLE
from climb.parallel import Group as ProcessGroup
from climb.precision import full_float32
from climb.settings.config import MemoryConfig
from climb.settings.fields import check_settings

MANY_CENTROIDS = 1000  # from this many long-term centroids on, merges use `ClosestPair`


@memory("centroid")
class CentroidMemory(GroupedMemory):
    """Short-term centroids collect new images; long-term centroids keep recurring ones.

    An image farther than an adaptive threshold from every centroid creates a short-term centroid and, if necessary,
    evicts the least recently updated one. Any other image joins its nearest centroid. A short-term centroid with
    ``images_per_centroid`` images is promoted. With too many long-term centroids, the two closest merge. With more
    than ``capacity`` images, the short-term memory is pruned.

    Args:
        capacity: maximum number of stored images (N).
        image_shape: (3, H, W).
        embedding_dim: length of an embedding.
        stm_centroids: maximum number of short-term centroids (L).
        ltm_centroids: maximum number of long-term centroids (K).
        images_per_centroid: maximum images per centroid; a short-term centroid with so many is promoted (M).
        window: number of recent distances that determine the threshold (w).
        novelty_percentile: quantile of these distances that is the threshold, in 0..1 (p).
        stm_rate: how far a short-term centroid moves toward an image that joins it.
        ltm_accept: probability that an image nearest to a full long-term centroid replaces one of its images.
        prune: "anchor" keeps the first image of each short-term centroid; "selective" removes the newest images of
            the least recently updated one.
        seed: seed of the random choices.
        device: device of images and centroid values.
        group: the processes over which the images are spread.

    >>> memory = CentroidMemory(40, (3, 8, 8), 16, stm_centroids=8, ltm_centroids=4, images_per_centroid=5)
    >>> report = memory.insert(torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.randn(10, 16))
    >>> report.novel + report.joined + report.replaced + report.rejected
    10
    >>> memory.sample(4).images.shape, len(memory.stm.ids)
    (torch.Size([4, 3, 8, 8]), 8)
    """

    sharded: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = (
        *("capacity", "stm_centroids", "ltm_centroids", "images_per_centroid", "window", "novelty_percentile"),
        *("stm_rate", "ltm_accept", "prune", "embed_mode"),
    )
    space: ClassVar[Space | None] = "projector"
    inserts: ClassVar[Literal["after", "before"]] = "after"
    bounded: ClassVar[bool] = True
    window_class: ClassVar[type[DistanceWindow]] = DistanceWindow

    @checked(capacity=1, image_shape=1, embedding_dim=1)
    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        embedding_dim: int,
        *,
        stm_centroids: int = 100,
        ltm_centroids: int = 60,
        images_per_centroid: int = 30,
        window: int = 1000,
        novelty_percentile: float = 0.95,
        stm_rate: float = 0.1,
        ltm_accept: float = 0.5,
        prune: Literal["anchor", "selective"] = "anchor",
        seed: int = 0,
        device: torch.device | str = "cpu",
        group: ProcessGroup = SINGLE,
    ) -> None:
        check_sizes(capacity, stm_centroids, ltm_centroids, images_per_centroid)
        check_settings(MemoryConfig(window=window, prune=prune, novelty_percentile=novelty_percentile))
        check_settings(MemoryConfig(stm_rate=stm_rate, ltm_accept=ltm_accept))
        rows = stm_centroids + ltm_centroids
        store = open_store(capacity, image_shape, device, group)
        distances = self.window_class(size=window, quantile=novelty_percentile)
        super().__init__(rows, stm_centroids, image_shape, embedding_dim, store, distances, seed)
        self.capacity = capacity
        self._sizes: dict[str, Any] = {
            "capacity": capacity,
            "image_shape": list(image_shape),
            "embedding_dim": embedding_dim,
            "stm_centroids": stm_centroids,
            "ltm_centroids": ltm_centroids,
            "images_per_centroid": images_per_centroid,
        }
        self._norms = torch.zeros(len(self._values), dtype=torch.float32, device=device)  # of the values
        self._ltm_size = ltm_centroids
        self._full = images_per_centroid
        self._stm_rate = stm_rate
        self._ltm_accept = ltm_accept
        self.pruning = prune

        # For few centroids, comparing all pairs is cheaper than the table.
        many = ltm_centroids >= MANY_CENTROIDS
        self._pairs = ClosestPair(ltm_centroids + 1, embedding_dim, device) if many else None
        self._created = 0
        self._events = EventLog()

    # -- inspection ----------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of images and centroid values, reserved space included."""
        return super().nbytes + (0 if self._pairs is None else self._pairs.nbytes)

    def events(self) -> list[Event]:
        """(image number, kind, centroid id) of the most recent events, oldest first."""
        return self._events.listed()

    def _pool(self, tier: int) -> IdPool:
        return self._ledger.pools[tier]

    # -- contract ------------------------------------------------------------------------------------------------

    def _draw(self, n: int) -> list[int]:
        """Ids of stored images, half of them long-term; if one tier has too few, the other fills up."""
        short, long = self._pool(STM), self._pool(LTM)
        from_stm = min(n - min(n // 2, len(long)), len(short))
        return long.draw(n - from_stm, self._replay) + short.draw(from_stm, self._replay)

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Step 6: move each centroid toward its own replayed images, at rate 0.5 / (images of the centroid) for each.

        The closed form does not depend on the order of the images.
        """
        rows = np.array([self._ledger.row_of.get(image, -1) for image in ids.tolist()], dtype=np.int64)
        touched = np.unique(rows[rows >= 0])
        rates = np.array([0.5 / len(self._ledger.held[row]) for row in touched.tolist()], dtype=np.float32)
        weights = rates[:, None] * (touched[:, None] == rows)
        device = self._values.device
        keep = torch.from_numpy(1.0 - weights.sum(axis=1, keepdims=True)).to(device, non_blocking=True)
        index = torch.from_numpy(touched).to(device, non_blocking=True)
        pull = torch.from_numpy(weights).to(device, non_blocking=True)
        with full_float32():
            moved = keep * self._values[index] + pull @ embeddings.detach().to(device, torch.float32)
        self._values.index_copy_(0, index, moved)
        self._norms.index_copy_(0, index, torch.linalg.vector_norm(moved, dim=1))
        if self._pairs is not None:
            long_term = np.flatnonzero(self._ledger.tier[touched] == LTM)
            self._pairs.put(touched[long_term].tolist(), moved[long_term.tolist()])

    # -- Algorithm 1, one image ----------------------------------------------------------------------------------

    def _geometry(self, embeddings: torch.Tensor) -> BatchGeometry:
        return BatchGeometry(self._values, self._norms, embeddings)

    def _insert_one(self, number: int, image: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        ledger = self._ledger

        # Step 1: the nearest centroid.
        nearest, distance = geometry.nearest(image, ledger.tier != FREE)

        # Step 2: assignment. Until the short-term memory has been full once, every image is novel. A long-term centroid
        # always has M images: promotion and merges leave exactly as many.
        joined_stm = False
        if not self._stm_was_full or distance > self.threshold:
            self._create(number, image, geometry, tally)
        elif ledger.tier[nearest] == STM:
            ledger.hold(number, nearest)
            geometry.move(nearest, image, self._stm_rate)
            tally["joined"] += 1
            joined_stm = True
        elif self._insertion.random() < self._ltm_accept:
            self._images.drop([ledger.replace(number, nearest, int(self._insertion.integers(self._full)))])
            tally["replaced"] += 1
        else:
            tally["rejected"] += 1

        # Step 3: the threshold.
        if nearest >= 0:
            self._window.append(distance)

        # Step 4: promotion.
        if joined_stm and len(ledger.held[nearest]) == self._full:
            self._promote(number, nearest, geometry, tally)

        # Step 5: pruning.
        if len(self) > self.capacity:
            self._prune(number, tally)

    def _create(self, number: int, image: int, geometry: BatchGeometry, tally: Counter[str]) -> int:
        row = super()._create(number, image, geometry, tally)
        self._ledger.centroid[row] = self._created
        self._events.append(number, "created", self._created)
        self._created += 1
        return row

    def _evict(self, row: int, number: int, tally: Counter[str]) -> None:
        self._events.append(number, "evicted", int(self._ledger.centroid[row]))
        super()._evict(row, number, tally)

    def _promote(self, number: int, row: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        ledger = self._ledger
        ledger.promote(row)
        self._note(number, "promoted", int(ledger.centroid[row]), tally)
        if self._pairs is not None:
            geometry.flush()
            self._pairs.put([row], self._values[row : row + 1])
        long_term = ledger.rows(LTM)
        if len(long_term) <= self._ltm_size:
            return
        if self._pairs is None:
            survivor, absorbed = geometry.closest(long_term)
        else:
            survivor, absorbed = sorted(self._pairs.closest(), key=long_term.index)
        geometry.merge(survivor, absorbed)  # into the older one
        if self._pairs is not None:
            self._pairs.drop(absorbed)
            self._pairs.put([survivor], self._values[survivor : survivor + 1])
        self._note(number, "merged", int(ledger.centroid[absorbed]), tally)
        ledger.absorb(survivor, absorbed)
        keep = self._insertion.choice(len(ledger.held[survivor]), size=self._full, replace=False)
        self._images.drop(ledger.keep_only(survivor, keep.tolist()))

    def _prune(self, number: int, tally: Counter[str]) -> None:
        ledger = self._ledger
        tally["pruned"] += 1
        if self.pruning == "anchor":
            self._events.append(number, "pruned", -1)
            for row in ledger.rows(STM):
                self._images.drop(ledger.keep_only(row, [0]))
            return
        while len(self) > self.capacity:
            row = ledger.least("updated")
            self._events.append(number, "pruned", int(ledger.centroid[row]))
            left = max(0, len(ledger.held[row]) - (len(self) - self.capacity))
            self._images.drop(ledger.keep_only(row, list(range(left))))
            if left == 0:
                self._evict(row, number, tally)

    def _note(self, number: int, kind: str, centroid: int, tally: Counter[str]) -> None:
        """Record and count an event."""
        self._events.append(number, kind, centroid)
        tally[kind] += 1

    # -- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        return {
            **super().state_dict(),
            "sizes": copy.deepcopy(self._sizes),
            "norms": self._norms.clone(),  # recomputed norms would round differently
            "pairs": {} if self._pairs is None else self._pairs.state_dict(),
            "events": self._events.to_tensor(),
            "created": self._created,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        if state["sizes"] != self._sizes:
            raise InputError(f"the saved memory has {state['sizes']}; this one has {self._sizes}")
        super().load_state_dict(state)
        norms = state.get("norms")  # None in older states
        self._norms.copy_(torch.linalg.vector_norm(self._values, dim=1) if norms is None else norms)
        if self._pairs is not None and state.get("pairs"):
            self._pairs.load_state_dict(state["pairs"])
        elif self._pairs is not None:
            long_term = self._ledger.rows(LTM)
            self._pairs.clear()
            self._pairs.put(long_term, self._values[long_term])
        self._events.from_tensor(state["events"])
        self._created = state["created"]
