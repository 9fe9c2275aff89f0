"""CLIMB's memory: images grouped around centroids, short-term and long-term, never more than N of them.

Algorithm 1 of the paper, read with one image at a time: nearest centroid, assignment, threshold, promotion and
pruning are finished for one image before the next is looked at, so every bound holds after every image. Values live
on the device, bookkeeping on the host; `BatchGeometry` connects the two with one synchronisation per mini-batch, and
a few for each merge.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from climb.errors import InputError
from climb.memory.contract import Embed, InsertReport, ReplayBatch, Space
from climb.memory.events import Event, EventLog
from climb.memory.geometry import BatchGeometry
from climb.memory.images_by_id import ImagesById
from climb.memory.ledger import FREE, LTM, STM, Ledger
from climb.memory.limits import check_rules, check_sizes
from climb.memory.pairs import ClosestPair
from climb.memory.store import check_images, checked_embeddings, open_store
from climb.memory.tier import Tier
from climb.memory.window import DistanceWindow
from climb.precision import full_float32
from climb.seeds import numpy_generator

MANY_CENTROIDS = 1000  # long-term centroids from which on merges do without comparing all pairs


class CentroidMemory:
    """Short-term centroids stage what is new, long-term centroids keep what came back often enough.

    An image farther than an adaptive threshold from every centroid opens a short-term centroid, pushing out the
    least recently updated one if needed; any other joins its nearest. A short-term centroid that holds
    ``images_per_centroid`` images is promoted; when there are too many long-term centroids the two closest merge.
    When more than ``capacity`` images would be stored, the short-term memory is pruned.

    Args:
        capacity: most images ever stored (N).
        image_shape: (3, H, W).
        embedding_dim: length of an embedding.
        stm_centroids: most short-term centroids (L).
        ltm_centroids: most long-term centroids (K).
        images_per_centroid: images that make a centroid long-term, and the most one holds (M).
        window: distances that the threshold looks back on (w).
        novelty_percentile: quantile of those distances that is the threshold (p), in 0..1.
        stm_rate: how far a short-term centroid moves toward an image that joins it.
        ltm_accept: probability that an image nearest to a full long-term centroid replaces one of its images.
        prune: "anchor" keeps the first image of each short-term centroid; "selective" removes the newest images of
            the least recently updated one.
        seed: seed of the random choices.
        device: where images and centroid values live.

    >>> memory = CentroidMemory(40, (3, 8, 8), 16, stm_centroids=8, ltm_centroids=4, images_per_centroid=5)
    >>> report = memory.insert(torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.randn(10, 16))
    >>> report.novel + report.joined + report.replaced + report.rejected
    10
    >>> memory.sample(4).images.shape, len(memory.stm.ids)
    (torch.Size([4, 3, 8, 8]), 8)
    """

    space: ClassVar[Space | None] = "projector"
    inserts: ClassVar[Literal["after", "before"]] = "after"
    bounded: ClassVar[bool] = True

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
    ) -> None:
        check_sizes(capacity, stm_centroids, ltm_centroids, images_per_centroid)
        check_rules(window, prune, novelty_percentile=novelty_percentile, stm_rate=stm_rate, ltm_accept=ltm_accept)
        self.capacity = capacity
        self.image_shape = tuple(image_shape)
        self.embedding_dim = embedding_dim
        self._stm_centroids = stm_centroids
        self._ltm_centroids = ltm_centroids
        self._full = images_per_centroid
        self._stm_rate = stm_rate
        self._ltm_accept = ltm_accept
        self.pruning = prune

        rows = stm_centroids + ltm_centroids
        self._values = torch.zeros((rows, embedding_dim), dtype=torch.float32, device=device)
        self._norms = torch.zeros(rows, dtype=torch.float32, device=device)  # theirs: what large memories read twice
        self._ledger = Ledger(rows)
        self._images = ImagesById(open_store(capacity, self.image_shape, device))
        # Comparing all pairs of few centroids is cheaper than knowing which to compare.
        many = ltm_centroids >= MANY_CENTROIDS
        self._pairs = ClosestPair(ltm_centroids + 1, embedding_dim, device) if many else None

        self._window = DistanceWindow(size=window, quantile=novelty_percentile)
        self._stm_was_full = False
        self._seen = 0
        self._created = 0
        self._events = EventLog()
        self._insertion = numpy_generator(seed, "memory")
        self._replay = numpy_generator(seed, "replay")

    # -- what one can ask ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._ledger)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for images and centroid values."""
        pairs = 0 if self._pairs is None else self._pairs.nbytes
        return self._images.store.nbytes + self._values.nbytes + pairs

    @property
    def threshold(self) -> float:
        """Distance above which an image is novel; nan until the first distance."""
        return self._window.quantile

    @property
    def stm(self) -> Tier:
        """The short-term memory as it is now."""
        return self._snapshot(STM)

    @property
    def ltm(self) -> Tier:
        """The long-term memory as it is now."""
        return self._snapshot(LTM)

    def events(self) -> list[Event]:
        """(image number, kind, centroid id) of the most recent events, oldest first."""
        return self._events.listed()

    def summary(self) -> dict[str, float]:
        """The numbers worth a plot."""
        return {
            "stm_images": len(self._ledger.pools[STM]),
            "ltm_images": len(self._ledger.pools[LTM]),
            "stm_centroids": self._ledger.count(STM),
            "ltm_centroids": self._ledger.count(LTM),
            "threshold": self.threshold,
        }

    def _snapshot(self, tier: int) -> Tier:
        ledger = self._ledger
        rows = ledger.rows(tier)
        return Tier(
            values=self._values[torch.tensor(rows, dtype=torch.int64, device=self._values.device)],
            counts=torch.tensor([len(ledger.held[row]) for row in rows], dtype=torch.int64),
            ids=[list(ledger.held[row]) for row in rows],
            updated=torch.from_numpy(ledger.updated[rows]),
            centroids=torch.from_numpy(ledger.centroid[rows]),
        )

    # -- the contract --------------------------------------------------------------------------------------------

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Take one stream mini-batch: uint8 images (n, 3, H, W), embeddings (n, d). Steps 1 to 5 of Algorithm 1."""
        check_images(images, self.image_shape)
        embeddings = checked_embeddings(embeddings, (len(images), self.embedding_dim), self._values.device)
        if len(images) == 0:
            return InsertReport()
        first = self._seen
        geometry = BatchGeometry(self._values, self._norms, embeddings)
        tally: Counter[str] = Counter()
        for image in range(len(images)):
            self._insert_one(image, geometry, tally)
        geometry.flush()
        # Only now are images copied: those that came and went within the mini-batch never take a slot.
        kept = [number for number in range(first, self._seen) if number in self._ledger.row_of]
        rows = torch.tensor([number - first for number in kept], dtype=torch.int64).to(images.device)
        self._images.put(kept, images.index_select(0, rows))
        return InsertReport(**tally)

    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` different stored images, half of them long-term; where one side is short the other fills."""
        if len(self) < max(n, 1):
            return None
        short, long = self._ledger.pools[STM], self._ledger.pools[LTM]
        from_stm = min(n - min(n // 2, len(long)), len(short))
        ids = long.draw(n - from_stm, self._replay) + short.draw(from_stm, self._replay)
        return ReplayBatch(images=self._images.get(ids), ids=torch.tensor(ids, dtype=torch.int64))

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Step 6: each centroid moves toward its own replayed images, at rate 0.5 / images held for each.

        Blending them one by one would depend on their order; this is the closed form that does not.
        """
        rows = [self._ledger.row_of.get(image, -1) for image in ids.tolist()]
        touched = sorted({row for row in rows if row >= 0})
        if not touched:
            return
        place = {row: k for k, row in enumerate(touched)}
        weights = np.zeros((len(touched), len(rows)), dtype=np.float32)
        for column, row in enumerate(rows):
            if row >= 0:
                weights[place[row], column] = 0.5 / len(self._ledger.held[row])
        device = self._values.device
        keep = torch.from_numpy(1.0 - weights.sum(axis=1, keepdims=True)).to(device, non_blocking=True)
        index = torch.tensor(touched).to(device, non_blocking=True)
        pull = torch.from_numpy(weights).to(device, non_blocking=True)
        with full_float32():
            moved = keep * self._values[index] + pull @ embeddings.detach().to(device, torch.float32)
        self._values.index_copy_(0, index, moved)
        self._norms.index_copy_(0, index, torch.linalg.vector_norm(moved, dim=1))
        if self._pairs is not None:
            long_term = [(k, row) for k, row in enumerate(touched) if self._ledger.tier[row] == LTM]
            if long_term:
                self._pairs.put([row for _, row in long_term], moved[[k for k, _ in long_term]])

    # -- Algorithm 1, one image ----------------------------------------------------------------------------------

    def _insert_one(self, image: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        ledger, number = self._ledger, self._seen
        self._seen += 1

        # Step 1: the nearest centroid.
        nearest, distance = geometry.nearest(image, ledger.tier != FREE)

        # Step 2: assignment. Until the short-term memory has been full once, every image is novel. A long-term centroid
        # always holds M images: it is promoted with as many, and a merge leaves as many.
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

    def _create(self, number: int, image: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        ledger = self._ledger
        if ledger.count(STM) == self._stm_centroids:
            self._evict(ledger.least_recent(), number, tally)
        row = ledger.open(self._created, number)
        self._created += 1
        ledger.hold(number, row)
        geometry.create(row, image)
        self._log(number, "created", row)
        tally["novel"] += 1
        self._stm_was_full = self._stm_was_full or ledger.count(STM) == self._stm_centroids

    def _promote(self, number: int, row: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        ledger = self._ledger
        ledger.promote(row)
        self._log(number, "promoted", row)
        tally["promoted"] += 1
        if self._pairs is not None:
            geometry.flush()
            self._pairs.put([row], self._values[row : row + 1])
        long_term = ledger.rows(LTM)
        if len(long_term) <= self._ltm_centroids:
            return
        survivor, absorbed = self._closest(long_term, geometry)
        geometry.merge(survivor, absorbed)
        if self._pairs is not None:
            self._pairs.drop(absorbed)
            self._pairs.put([survivor], self._values[survivor : survivor + 1])
        self._log(number, "merged", absorbed)
        ledger.absorb(survivor, absorbed)
        keep = self._insertion.choice(len(ledger.held[survivor]), size=self._full, replace=False)
        self._images.drop(ledger.keep_only(survivor, keep.tolist()))
        tally["merged"] += 1

    def _closest(self, long_term: list[int], geometry: BatchGeometry) -> tuple[int, int]:
        """The two most similar long-term centroids, the older one first."""
        if self._pairs is None:
            return geometry.closest(long_term)
        one, other = self._pairs.closest()
        return (one, other) if self._ledger.centroid[one] < self._ledger.centroid[other] else (other, one)

    def _prune(self, number: int, tally: Counter[str]) -> None:
        ledger = self._ledger
        tally["pruned"] += 1
        if self.pruning == "anchor":
            self._events.append(number, "pruned", -1)
            for row in ledger.rows(STM):
                self._images.drop(ledger.keep_only(row, [0]))
            return
        while len(self) > self.capacity:
            row = ledger.least_recent()
            self._log(number, "pruned", row)
            left = max(0, len(ledger.held[row]) - (len(self) - self.capacity))
            self._images.drop(ledger.keep_only(row, list(range(left))))
            if left == 0:
                self._evict(row, number, tally)

    def _evict(self, row: int, number: int, tally: Counter[str]) -> None:
        self._images.drop(self._ledger.keep_only(row, []))
        self._log(number, "evicted", row)
        self._ledger.close(row)
        tally["evicted"] += 1

    def _log(self, number: int, kind: str, row: int) -> None:
        self._events.append(number, kind, int(self._ledger.centroid[row]))

    # -- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes. Images are listed in the order of the two sampling pools."""
        return {
            "sizes": self._sizes(),
            "images": self._images.copied(self._ledger.stored()),
            "values": self._values.clone(),
            "norms": self._norms.clone(),  # neither these nor cosines are computed again: rounding would differ
            "pairs": {} if self._pairs is None else self._pairs.state_dict(),
            **self._ledger.state_dict(),
            "window": torch.tensor(self._window.distances(), dtype=torch.float64),
            "events": self._events.to_tensor(),
            "stm_was_full": self._stm_was_full,
            "seen": self._seen,
            "created": self._created,
            "insertion": self._insertion.bit_generator.state,
            "replay": self._replay.bit_generator.state,
        }

    def _sizes(self) -> dict[str, Any]:
        return {
            "capacity": self.capacity,
            "image_shape": list(self.image_shape),
            "embedding_dim": self.embedding_dim,
            "stm_centroids": self._stm_centroids,
            "ltm_centroids": self._ltm_centroids,
            "images_per_centroid": self._full,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        if state["sizes"] != self._sizes():
            raise InputError(f"the saved memory has {state['sizes']}; this one has {self._sizes()}")
        self._values.copy_(state["values"])
        self._ledger.load_state_dict(state)
        if "norms" in state:
            self._norms.copy_(state["norms"])
        else:  # older states have neither
            self._norms.copy_(torch.linalg.vector_norm(self._values, dim=1))
        if self._pairs is not None and state.get("pairs"):
            self._pairs.load_state_dict(state["pairs"])
        elif self._pairs is not None:
            long_term = self._ledger.rows(LTM)
            self._pairs.clear()
            self._pairs.put(long_term, self._values[long_term])
        self._images.clear()
        self._images.put(self._ledger.stored(), state["images"])
        self._window.clear()
        self._window.extend(state["window"].tolist())
        self._events.from_tensor(state["events"])
        self._stm_was_full = state["stm_was_full"]
        self._seen = state["seen"]
        self._created = state["created"]
        self._insertion.bit_generator.state = state["insertion"]
        self._replay.bit_generator.state = state["replay"]
