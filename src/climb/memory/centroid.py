"""CLIMB's memory: images grouped around centroids, short-term and long-term, never more than N of them.

Algorithm 1 of the paper, read with one image at a time: nearest centroid, assignment, threshold, promotion and
pruning are finished for one image before the next is looked at, so every bound holds after every image. Values live
on the device, bookkeeping on the host; `BatchGeometry` connects the two with one synchronisation per mini-batch.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from climb.errors import InputError, unknown
from climb.memory.contract import Embed, InsertReport, ReplayBatch, Space
from climb.memory.geometry import BatchGeometry
from climb.memory.pool import IdPool
from climb.memory.store import ImageStore, check_images
from climb.memory.window import DistanceWindow
from climb.precision import full_float32
from climb.seeds import numpy_generator

FREE, STM, LTM = 0, 1, 2
EVENTS = ("created", "evicted", "promoted", "merged", "pruned")
EVENTS_KEPT = 65_536  # the most recent ones: a stream may be endless, the memory is not


@dataclass(frozen=True, kw_only=True)
class Tier:
    """A snapshot of the short-term or the long-term memory; one row a centroid, oldest centroid first."""

    values: torch.Tensor
    """float32 (n, d): the centroids, in the space of the embeddings."""
    counts: torch.Tensor
    """int64 (n,): images held."""
    ids: list[list[int]]
    """Ids of the images held; in the short-term memory the anchor comes first."""
    updated: torch.Tensor
    """int64 (n,): number of the last image taken in."""
    centroids: torch.Tensor
    """int64 (n,): the centroids' own ids, in order of creation over the life of the memory."""


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
        if window < 1:
            raise InputError(f"window must be at least 1; given {window}")
        for name, value in (
            ("novelty_percentile", novelty_percentile),
            ("stm_rate", stm_rate),
            ("ltm_accept", ltm_accept),
        ):
            if not 0 <= value <= 1:
                raise InputError(f"{name} must be in 0..1: 0 <= {name} <= 1; given {value}")
        if prune not in ("anchor", "selective"):
            raise unknown("pruning strategy", prune, ["anchor", "selective"])
        self.capacity = capacity
        self.image_shape = tuple(image_shape)
        self.embedding_dim = embedding_dim
        self._limits = {STM: stm_centroids, LTM: ltm_centroids}
        self._full = images_per_centroid
        self._stm_rate = stm_rate
        self._ltm_accept = ltm_accept
        self._prune_kind = prune

        # One row per centroid, short-term and long-term alike: promotion changes the tier, not the row.
        # L + K rows suffice, since a promotion that overfills the long-term memory has just left the short-term one.
        rows = stm_centroids + ltm_centroids
        self._values = torch.zeros((rows, embedding_dim), dtype=torch.float32, device=device)
        self._tier = np.zeros(rows, dtype=np.int8)
        self._updated = np.zeros(rows, dtype=np.int64)
        self._centroid = np.full(rows, -1, dtype=np.int64)
        self._held: list[list[int]] = [[] for _ in range(rows)]  # image ids by row, anchor first
        self._pools = {STM: IdPool(), LTM: IdPool()}
        self._row_of: dict[int, int] = {}  # image id -> row; who is stored
        self._slot_of: dict[int, int] = {}  # image id -> slot of the store
        self._store = ImageStore(capacity, self.image_shape, device)

        self._window = DistanceWindow(size=window, quantile=novelty_percentile)
        self._stm_was_full = False
        self._seen = 0
        self._created = 0
        self._events: deque[tuple[int, str, int]] = deque(maxlen=EVENTS_KEPT)
        self._insertion = numpy_generator(seed, "memory")
        self._replay = numpy_generator(seed, "replay")

    # -- what one can ask ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for images and centroid values."""
        return self._store.nbytes + self._values.numel() * self._values.element_size()

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

    def events(self) -> list[tuple[int, str, int]]:
        """(image number, kind, centroid id) of the most recent events, oldest first."""
        return list(self._events)

    def summary(self) -> dict[str, float]:
        """The numbers worth a plot."""
        return {
            "stm_images": len(self._pools[STM]),
            "ltm_images": len(self._pools[LTM]),
            "stm_centroids": int((self._tier == STM).sum()),
            "ltm_centroids": int((self._tier == LTM).sum()),
            "threshold": self.threshold,
        }

    # -- the contract ----------------------------------------------------------------------------------------------

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Take one stream mini-batch: uint8 images (n, 3, H, W), embeddings (n, d). Steps 1 to 5 of Algorithm 1."""
        check_images(images, self.image_shape)
        if embeddings is None or tuple(embeddings.shape) != (images.shape[0], self.embedding_dim):
            given = None if embeddings is None else tuple(embeddings.shape)
            raise InputError(f"embeddings must have shape ({images.shape[0]}, {self.embedding_dim}); given {given}")
        if images.shape[0] == 0:
            return InsertReport()
        first = self._seen
        geometry = BatchGeometry(self._values, embeddings.detach().to(self._values.device, torch.float32))
        tally: Counter[str] = Counter()
        for image in range(images.shape[0]):
            self._insert_one(image, geometry, tally)
        geometry.flush()
        kept = [number for number in range(first, self._seen) if number in self._row_of]
        rows = torch.tensor([number - first for number in kept], dtype=torch.int64).to(images.device)
        slots = self._store.put(images.index_select(0, rows).to(self._values.device))
        self._slot_of.update(zip(kept, slots, strict=True))
        return InsertReport(**tally)

    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` different stored images, half of them long-term; where one side is short the other fills."""
        if len(self) < max(n, 1):
            return None
        from_ltm = min(n // 2, len(self._pools[LTM]))
        from_stm = min(n - from_ltm, len(self._pools[STM]))
        ids = self._pools[LTM].draw(n - from_stm, self._replay) + self._pools[STM].draw(from_stm, self._replay)
        images = self._store.get([self._slot_of[image] for image in ids])
        return ReplayBatch(images=images, ids=torch.tensor(ids, dtype=torch.int64))

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Step 6: each centroid moves toward its own replayed images, at rate 0.5 / images held for each.

        Blending them one by one would depend on their order; this is the closed form that does not.
        """
        rows = [self._row_of.get(image, -1) for image in ids.tolist()]
        touched = sorted({row for row in rows if row >= 0})
        if not touched:
            return
        place = {row: k for k, row in enumerate(touched)}
        weights = np.zeros((len(touched), len(rows)), dtype=np.float32)
        for column, row in enumerate(rows):
            if row >= 0:
                weights[place[row], column] = 0.5 / len(self._held[row])
        device = self._values.device
        keep = torch.from_numpy(1.0 - weights.sum(axis=1, keepdims=True)).to(device, non_blocking=True)
        index = torch.tensor(touched).to(device, non_blocking=True)
        with full_float32():
            pull = torch.from_numpy(weights).to(device, non_blocking=True) @ embeddings.detach().to(
                device, torch.float32
            )
        self._values.index_copy_(0, index, keep * self._values[index] + pull)

    # -- Algorithm 1, one image --------------------------------------------------------------------------------------

    def _insert_one(self, image: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        number = self._seen
        self._seen += 1

        # Step 1: the nearest centroid.
        nearest, distance = -1, float("nan")
        if self._tier.any():
            distances = np.where(self._tier == FREE, np.inf, geometry.distances(image))
            nearest = int(distances.argmin())
            distance = float(distances[nearest])

        # Step 2: assignment. Until the short-term memory has been full once, every image is novel.
        joined_stm = False
        if not self._stm_was_full or distance > self.threshold:
            self._create(number, image, geometry, tally)
        elif self._tier[nearest] == STM:
            self._hold(number, nearest)
            geometry.move(nearest, image, self._stm_rate)
            tally["joined"] += 1
            joined_stm = True
        elif len(self._held[nearest]) < self._full:
            self._hold(number, nearest)
            tally["joined"] += 1
        elif self._insertion.random() < self._ltm_accept:
            self._replace(number, nearest, int(self._insertion.integers(self._full)))
            tally["replaced"] += 1
        else:
            tally["rejected"] += 1

        # Step 3: the threshold.
        if nearest >= 0:
            self._window.append(distance)

        # Step 4: promotion.
        if joined_stm and len(self._held[nearest]) == self._full:
            self._promote(number, nearest, geometry, tally)

        # Step 5: pruning.
        if len(self) > self.capacity:
            self._prune(number, tally)

    def _create(self, number: int, image: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        if (self._tier == STM).sum() == self._limits[STM]:
            self._evict(self._least_recent(), number, tally)
        row = int(np.flatnonzero(self._tier == FREE)[0])
        self._tier[row] = STM
        self._centroid[row] = self._created
        self._created += 1
        self._hold(number, row)
        geometry.create(row, image)
        self._log(number, "created", row)
        tally["novel"] += 1
        if (self._tier == STM).sum() == self._limits[STM]:
            self._stm_was_full = True

    def _promote(self, number: int, row: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        for image in self._held[row]:
            self._pools[STM].remove(image)
            self._pools[LTM].add(image)
        self._tier[row] = LTM
        self._log(number, "promoted", row)
        tally["promoted"] += 1
        long_term = self._rows(LTM)
        if len(long_term) > self._limits[LTM]:
            survivor, absorbed = geometry.merge_closest(long_term)
            pool = self._held[survivor] + self._held[absorbed]
            if len(pool) > self._full:
                keep = set(self._insertion.choice(len(pool), size=self._full, replace=False).tolist())
                for position, image in enumerate(pool):
                    if position not in keep:
                        self._forget(image)
                pool = [image for position, image in enumerate(pool) if position in keep]
            for image in pool:
                self._row_of[image] = survivor
            self._held[survivor] = pool
            self._updated[survivor] = max(self._updated[survivor], self._updated[absorbed])
            self._log(number, "merged", absorbed)
            self._free_row(absorbed)
            tally["merged"] += 1

    def _prune(self, number: int, tally: Counter[str]) -> None:
        tally["pruned"] += 1
        if self._prune_kind == "anchor":
            self._events.append((number, "pruned", -1))
            for row in self._rows(STM):
                for image in self._held[row][1:]:
                    self._forget(image)
                del self._held[row][1:]
            return
        while len(self) > self.capacity:
            row = self._least_recent()
            self._log(number, "pruned", row)
            while self._held[row] and len(self) > self.capacity:
                self._forget(self._held[row].pop())
            if not self._held[row]:
                self._evict(row, number, tally)

    # -- bookkeeping -------------------------------------------------------------------------------------------------

    def _least_recent(self) -> int:
        return int(np.where(self._tier == STM, self._updated, np.iinfo(np.int64).max).argmin())

    def _rows(self, tier: int) -> list[int]:
        """Rows of a tier, oldest centroid first."""
        rows = np.flatnonzero(self._tier == tier)
        ordered: list[int] = rows[np.argsort(self._centroid[rows])].tolist()
        return ordered

    def _hold(self, number: int, row: int) -> None:
        self._held[row].append(number)
        self._row_of[number] = row
        self._pools[int(self._tier[row])].add(number)
        self._updated[row] = number

    def _replace(self, number: int, row: int, position: int) -> None:
        self._forget(self._held[row][position])
        self._held[row][position] = number
        self._row_of[number] = row
        self._pools[LTM].add(number)
        self._updated[row] = number

    def _forget(self, image: int) -> None:
        """The image leaves the memory; the caller takes it off its centroid's list."""
        row = self._row_of.pop(image)
        self._pools[int(self._tier[row])].remove(image)
        slot = self._slot_of.pop(image, None)  # an image of the mini-batch being inserted has no slot yet
        if slot is not None:
            self._store.release([slot])

    def _evict(self, row: int, number: int, tally: Counter[str]) -> None:
        for image in self._held[row]:
            self._forget(image)
        self._log(number, "evicted", row)
        self._free_row(row)
        tally["evicted"] += 1

    def _free_row(self, row: int) -> None:
        self._tier[row] = FREE
        self._centroid[row] = -1
        self._held[row] = []

    def _log(self, number: int, kind: str, row: int) -> None:
        self._events.append((number, kind, int(self._centroid[row])))

    def _snapshot(self, tier: int) -> Tier:
        rows = self._rows(tier)
        return Tier(
            values=self._values[torch.tensor(rows, dtype=torch.int64, device=self._values.device)],
            counts=torch.tensor([len(self._held[row]) for row in rows], dtype=torch.int64),
            ids=[list(self._held[row]) for row in rows],
            updated=torch.from_numpy(self._updated[rows]),
            centroids=torch.from_numpy(self._centroid[rows]),
        )

    # -- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes. Images are listed in the order of the two sampling pools."""
        stored = self._pools[STM].ids + self._pools[LTM].ids
        return {
            "images": self._store.get([self._slot_of[image] for image in stored]),
            "stm_pool": torch.tensor(self._pools[STM].ids, dtype=torch.int64),
            "ltm_pool": torch.tensor(self._pools[LTM].ids, dtype=torch.int64),
            "held": torch.tensor([image for held in self._held for image in held], dtype=torch.int64),
            "counts": torch.tensor([len(held) for held in self._held], dtype=torch.int64),
            "values": self._values.clone(),
            "tier": torch.from_numpy(self._tier.copy()),
            "updated": torch.from_numpy(self._updated.copy()),
            "centroid": torch.from_numpy(self._centroid.copy()),
            "window": torch.tensor(self._window.distances(), dtype=torch.float64),
            "events": torch.tensor(
                [(number, EVENTS.index(kind), centroid) for number, kind, centroid in self._events],
                dtype=torch.int64,
            ).reshape(-1, 3),
            "stm_was_full": self._stm_was_full,
            "seen": self._seen,
            "created": self._created,
            "insertion": self._insertion.bit_generator.state,
            "replay": self._replay.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        images = state["images"]
        if state["values"].shape != self._values.shape or images.shape[0] > self.capacity:
            raise InputError(
                f"the saved memory has {tuple(state['values'].shape)} centroid values and {images.shape[0]} images; "
                f"this one has {tuple(self._values.shape)} and room for {self.capacity}"
            )
        self._values.copy_(state["values"])
        self._tier[:] = state["tier"].cpu().numpy()
        self._updated[:] = state["updated"].cpu().numpy()
        self._centroid[:] = state["centroid"].cpu().numpy()
        self._pools = {STM: IdPool(state["stm_pool"].tolist()), LTM: IdPool(state["ltm_pool"].tolist())}
        self._held = [part.tolist() for part in state["held"].split(state["counts"].tolist())]
        self._row_of = {image: row for row, held in enumerate(self._held) for image in held}
        self._store.clear()
        slots = self._store.put(images.to(self._values.device))
        self._slot_of = dict(zip(self._pools[STM].ids + self._pools[LTM].ids, slots, strict=True))
        self._window.clear()
        self._window.extend(state["window"].tolist())
        self._events.clear()
        self._events.extend((number, EVENTS[kind], centroid) for number, kind, centroid in state["events"].tolist())
        self._stm_was_full = state["stm_was_full"]
        self._seen = state["seen"]
        self._created = state["created"]
        self._insertion.bit_generator.state = state["insertion"]
        self._replay.bit_generator.state = state["replay"]


def check_sizes(capacity: int, stm_centroids: int, ltm_centroids: int, images_per_centroid: int) -> None:
    """Refuse sizes for which the bound could not be kept by pruning the short-term memory alone."""
    if min(stm_centroids, ltm_centroids) < 1:
        raise InputError(
            "stm_centroids and ltm_centroids must be at least 1: "
            f"stm_centroids >= 1 and ltm_centroids >= 1; given {stm_centroids} and {ltm_centroids}"
        )
    if images_per_centroid < 2:
        raise InputError(f"images_per_centroid must be at least 2: M >= 2; given {images_per_centroid}")
    needed = ltm_centroids * images_per_centroid + stm_centroids
    if needed > capacity:
        raise InputError(
            "ltm_centroids * images_per_centroid + stm_centroids must not exceed capacity (K * M + L <= N): "
            f"{ltm_centroids} * {images_per_centroid} + {stm_centroids} = {needed} > {capacity}"
        )
