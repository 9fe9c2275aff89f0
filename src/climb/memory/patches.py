"""PCMC's memory: patches grouped around short-term centroids, bounded, and long-term ones, not bounded."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from climb.errors import InputError
from climb.memory.closest import later_of_closest
from climb.memory.contract import Embed, InsertReport, ReplayBatch, Space
from climb.memory.geometry import BatchGeometry
from climb.memory.images_by_id import ImagesById
from climb.memory.ledger import FREE, LTM, STM
from climb.memory.limits import check_fractions
from climb.memory.pool import IdPool
from climb.memory.store import ImageStore, check_images, checked_embeddings
from climb.memory.window import DistanceWindow
from climb.seeds import numpy_generator

FIRST_SLOTS = 256  # patches there is room for at first; doubled whenever they are used up
CENTROIDS_AT_ONCE = 256  # whose patches are compared with each other in one matrix product


class PatchMemory:
    """The memory of PCMC (Taylor, Vassiliades and Dovrolis, 2024). Its images are patches of images.

    Awake, a patch whose cosine distance ``d`` to its nearest centroid exceeds ``tau``, a quantile of the last
    distances, opens a short-term centroid, in place of the oldest one when all are taken, however recently that was
    matched: to become long-term, a centroid must fill before enough newer ones have come. Any other patch joins its
    nearest centroid if that is short-term; the centroid stays where its first patch is. A short-term centroid that
    holds M patches becomes long-term, with them. `after_sleep` drops what sleep has made redundant: short-term
    centroids keep their first patch, and a long-term one with n patches loses the later of its two most similar with
    probability ``((n - m) / (M - m))^q``. Every centroid then starts anew from its first patch, since the encoder
    has changed.

    The long-term memory has no bound: ``bounded`` is False, and ``capacity`` is the short-term memory's.

    Where the published code departs from this idea, or leaves a point open, our choice is:

    - a patch far from every centroid is novel (in the code, only if its nearest is a short-term one);
    - a centroid does not follow the patches that join it (the code's run script; its default is a step of 0.1);
    - promotion moves a centroid (the code leaves a copy with its first patch in the short-term memory);
    - the distance of every patch enters the window (the code: of 10 in 16, drawn at random);
    - long-term centroids and their patches do not change while awake;
    - the start is empty, and every patch is novel until the short-term memory has been full once.

    Args:
        stm_centroids: most short-term centroids.
        image_shape: (3, height, width) of a patch.
        embedding_dim: length of an embedding, the encoder's output.
        patches_per_centroid: patches that make a centroid long-term, and the most one holds (M).
        window: distances that the threshold looks back on.
        novelty_percentile: quantile of those distances that is the threshold (tau), in 0..1.
        least_patches: patches that a long-term centroid is never thinned below (m).
        thinning: the power q; the larger, the rarer a centroid that is not full loses a patch.
        seed: seed of the random choices.
        device: where patches and centroid values live.

    >>> memory = PatchMemory(4, (3, 8, 8), 16, patches_per_centroid=5, least_patches=2)
    >>> report = memory.insert(torch.zeros(6, 3, 8, 8, dtype=torch.uint8), torch.eye(6, 16))
    >>> report.novel, report.evicted, len(memory), memory.bounded
    (4, 0, 6, False)
    """

    space: ClassVar[Space | None] = "backbone"
    inserts: ClassVar[Literal["after", "before"]] = "before"
    bounded: ClassVar[bool] = False

    def __init__(
        self,
        stm_centroids: int,
        image_shape: tuple[int, ...],
        embedding_dim: int,
        *,
        patches_per_centroid: int = 30,
        window: int = 1000,
        novelty_percentile: float = 0.95,
        least_patches: int = 5,
        thinning: float = 4.0,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        for name, value, least in (
            ("stm_centroids", stm_centroids, 1),
            ("window", window, 1),
            ("least_patches", least_patches, 1),
            ("patches_per_centroid", patches_per_centroid, least_patches + 1),
            ("thinning", thinning, 0),
        ):
            if value < least:
                raise InputError(f"{name} must be at least {least}; given {value}")
        check_fractions(novelty_percentile=novelty_percentile)
        self.image_shape = tuple(image_shape)
        self.embedding_dim = embedding_dim
        self._limit = stm_centroids
        self._full = patches_per_centroid
        self._least = least_patches
        self._thinning = thinning

        # One row per centroid; promotion changes its tier, not its row. Rows are added as the long-term memory grows.
        self._values = torch.zeros((stm_centroids, embedding_dim), dtype=torch.float32, device=device)
        self._tier = np.zeros(stm_centroids, dtype=np.int8)
        self._born = np.zeros(stm_centroids, dtype=np.int64)  # number of the patch that opened the centroid
        self._held: list[list[int]] = [[] for _ in range(stm_centroids)]  # patch ids by row, the first one first
        self._pool = IdPool()
        self._store = ImageStore(FIRST_SLOTS, self.image_shape, device)
        self._images = ImagesById(self._store)

        self._window = DistanceWindow(size=window, quantile=novelty_percentile)
        self._stm_was_full = False
        self._seen = 0
        self._insertion = numpy_generator(seed, "memory")
        self._replay = numpy_generator(seed, "replay")

    # -- what one can ask ------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Most patches in the short-term memory; the long-term ones come on top, without a bound."""
        return self._limit * self._full

    def __len__(self) -> int:
        return len(self._pool)

    @property
    def nbytes(self) -> int:
        """Bytes reserved for patches and centroid values; grows with the long-term memory."""
        return self._store.nbytes + self._values.nbytes

    @property
    def threshold(self) -> float:
        """Distance above which a patch is novel; nan until the first distance."""
        return self._window.quantile

    def centroids(self, tier: Literal["stm", "ltm"]) -> dict[int, list[int]]:
        """Ids of the patches of each centroid of a tier, by row; the first patch first."""
        return {row: list(self._held[row]) for row in self._rows(STM if tier == "stm" else LTM)}

    def summary(self) -> dict[str, float]:
        """The numbers worth a plot; images are patches."""
        stm, ltm = self._rows(STM), self._rows(LTM)
        return {
            "stm_images": sum(len(self._held[row]) for row in stm),
            "ltm_images": sum(len(self._held[row]) for row in ltm),
            "stm_centroids": len(stm),
            "ltm_centroids": len(ltm),
            "threshold": self.threshold,
        }

    # -- the contract ----------------------------------------------------------------------------------------------

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Take uint8 patches (n, 3, h, w) with the encoder's embeddings (n, d), in the order they come."""
        check_images(images, self.image_shape)
        n = images.shape[0]
        first = self._seen
        embeddings = checked_embeddings(embeddings, (n, self.embedding_dim), self._values.device)
        self._make_rows(n)
        norms = torch.linalg.vector_norm(self._values, dim=1)
        geometry = BatchGeometry(self._values, norms, embeddings)
        tally: Counter[str] = Counter()
        for patch in range(n):
            self._insert_one(patch, geometry, tally)
        geometry.flush()
        kept = [number for number in range(first, self._seen) if number in self._pool]
        rows = torch.tensor([number - first for number in kept], dtype=torch.int64).to(images.device)
        self._store.make_room(len(kept))
        self._images.put(kept, images.index_select(0, rows))
        return InsertReport(**tally)

    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` different stored patches, uniformly, or None until that many are stored."""
        if len(self) < max(n, 1):
            return None
        ids = self._pool.draw(n, self._replay)
        return ReplayBatch(images=self._images.get(ids), ids=torch.tensor(ids, dtype=torch.int64))

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Nothing: centroids follow the encoder in `after_sleep`."""

    # -- sleep -----------------------------------------------------------------------------------------------------

    def rehearsal(self) -> torch.Tensor:
        """uint8 (n, 3, h, w): what a sleep trains on, the long-term patches and those of short-term centroids with
        more than one: what was seen only once may be noise."""
        rows = [row for row in self._rows(STM) if len(self._held[row]) > 1] + self._rows(LTM)
        return self._images.get([patch for row in rows for patch in self._held[row]])

    def after_sleep(self, embed: Embed) -> int:
        """Drop redundant patches and move every centroid to the embedding of its first one; the patches dropped.

        Of a long-term centroid's most similar pair the later patch goes, so that the first one always stays.
        """
        before = len(self)
        short, long = self._rows(STM), self._rows(LTM)
        for row in short:
            self._forget(self._held[row][1:])
            del self._held[row][1:]
        draws = self._insertion.random(len(long))
        thinned = [row for row, drawn in zip(long, draws, strict=True) if drawn < self._chance(len(self._held[row]))]
        for start in range(0, len(thinned), CENTROIDS_AT_ONCE):
            some = thinned[start : start + CENTROIDS_AT_ONCE]
            embeddings = embed(self._images.get([patch for row in some for patch in self._held[row]]))
            later = later_of_closest(embeddings.detach(), [len(self._held[row]) for row in some])
            self._forget([self._held[row].pop(position) for row, position in zip(some, later, strict=True)])
        rows = short + long
        if rows:
            firsts = embed(self._images.get([self._held[row][0] for row in rows])).detach()
            index = torch.tensor(rows, dtype=torch.int64).to(self._values.device)
            self._values.index_copy_(0, index, firsts.to(self._values.device, torch.float32))
        return before - len(self)

    def _chance(self, patches: int) -> float:
        """Probability that a long-term centroid of so many patches loses one."""
        spare = (patches - self._least) / (self._full - self._least)
        return spare**self._thinning if spare > 0 else 0.0

    # -- one patch ---------------------------------------------------------------------------------------------------

    def _insert_one(self, patch: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        number = self._seen
        self._seen += 1
        nearest, distance = geometry.nearest(patch, self._tier != FREE)
        if not self._stm_was_full or distance > self.threshold:
            self._create(number, patch, geometry, tally)
        elif self._tier[nearest] == STM:
            self._hold(number, nearest)
            tally["joined"] += 1
            if len(self._held[nearest]) == self._full:
                self._tier[nearest] = LTM
                tally["promoted"] += 1
        else:
            tally["rejected"] += 1
        if nearest >= 0:
            self._window.append(distance)

    def _create(self, number: int, patch: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        short = self._tier == STM
        if short.sum() == self._limit:
            row = int(np.where(short, self._born, np.iinfo(np.int64).max).argmin())
            self._forget(self._held[row])
            self._held[row] = []
            tally["evicted"] += 1
        else:
            row = int((self._tier == FREE).argmax())
            self._tier[row] = STM
            self._stm_was_full |= bool(short.sum() + 1 == self._limit)
        self._hold(number, row)
        self._born[row] = number
        geometry.create(row, patch)
        tally["novel"] += 1

    # -- bookkeeping -------------------------------------------------------------------------------------------------

    def _rows(self, tier: int) -> list[int]:
        rows: list[int] = np.flatnonzero(self._tier == tier).tolist()
        return rows

    def _hold(self, number: int, row: int) -> None:
        self._held[row].append(number)
        self._pool.add(number)

    def _forget(self, patches: list[int]) -> None:
        """Patches leave the memory; the caller takes them off their centroids' lists."""
        for patch in patches:
            self._pool.remove(patch)
        self._images.drop(patches)

    def _make_rows(self, patches: int) -> None:
        """Rows for a full short-term memory beside the long-term one, were every patch to promote a centroid."""
        have, needed = len(self._tier), self._limit + int((self._tier == LTM).sum()) + patches
        if needed > have:
            more = max(needed, 2 * have) - have
            self._values = torch.cat([self._values, self._values.new_zeros((more, self.embedding_dim))])
            self._tier = np.concatenate([self._tier, np.zeros(more, dtype=np.int8)])
            self._born = np.concatenate([self._born, np.zeros(more, dtype=np.int64)])
            self._held += [[] for _ in range(more)]

    # -- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes. Patches are listed in the order of the sampling pool."""
        return {
            "images": self._images.copied(self._pool.ids),
            "room": self._store.capacity,  # not from the patches alone: bytes are counted, and grew by doubling
            "pool": torch.tensor(self._pool.ids, dtype=torch.int64),
            "held": torch.tensor([patch for held in self._held for patch in held], dtype=torch.int64),
            "counts": torch.tensor([len(held) for held in self._held], dtype=torch.int64),
            "values": self._values.clone(),
            "tier": torch.from_numpy(self._tier.copy()),
            "born": torch.from_numpy(self._born.copy()),
            "window": torch.tensor(self._window.distances(), dtype=torch.float64),
            "stm_centroids": self._limit,
            "full": self._full,
            "stm_was_full": self._stm_was_full,
            "seen": self._seen,
            "insertion": self._insertion.bit_generator.state,
            "replay": self._replay.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        images = state["images"]
        saved = (tuple(images.shape[1:]), state["values"].shape[1], state["stm_centroids"], state["full"])
        own = (self.image_shape, self.embedding_dim, self._limit, self._full)
        if saved != own:
            names = "patch shape, embedding length, short-term centroids, patches per centroid"
            raise InputError(f"the saved memory does not fit this one ({names}): {saved}, not {own}")
        self._values = state["values"].to(self._values.device, torch.float32, copy=True)
        self._tier = state["tier"].cpu().numpy().copy()
        self._born = state["born"].cpu().numpy().copy()
        self._held = [part.tolist() for part in state["held"].split(state["counts"].tolist())]
        self._pool = IdPool(state["pool"].tolist())
        self._images.clear()
        self._store.make_room(max(len(images), state.get("room", 0)))
        self._images.put(self._pool.ids, images)
        self._window.clear()
        self._window.extend(state["window"].tolist())
        self._stm_was_full = state["stm_was_full"]
        self._seen = state["seen"]
        self._insertion.bit_generator.state = state["insertion"]
        self._replay.bit_generator.state = state["replay"]
