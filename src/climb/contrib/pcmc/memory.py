"""PCMC's memory: patches grouped around short-term centroids, bounded, and long-term ones, not bounded."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any, ClassVar, Literal

import torch

from climb.errors import InputError
from climb.memory.contract import Embed, Space
from climb.memory.geometry import BatchGeometry, DistanceWindow
from climb.memory.grouped import GroupedMemory
from climb.memory.ledger import FREE, LTM, STM, Ledger
from climb.memory.pairs import later_of_closest
from climb.memory.store import ImageStore
from climb.settings.config import MemoryConfig
from climb.settings.fields import check_settings

FIRST_SLOTS = 256  # slots at the start; doubled when they are used up
CENTROIDS_AT_ONCE = 256  # centroids whose patches are compared in one matrix product


class PatchLedger(Ledger):
    """Which centroid holds which patches. All patches are in one pool, and centroids have no ids."""

    pool_names: ClassVar[dict[int, str]] = {STM: "pool", LTM: "pool"}
    saved: ClassVar[tuple[str, ...]] = ("tier", "born")

    def promote(self, row: int) -> None:
        """Move a centroid and its patches to the long-term memory."""
        self.tier[row] = LTM


class PatchMemory(GroupedMemory):
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
    ledger_class: ClassVar[type[Ledger]] = PatchLedger
    evicts_by: ClassVar[str] = "born"

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
            ("least_patches", least_patches, 1),
            ("patches_per_centroid", patches_per_centroid, least_patches + 1),
            ("thinning", thinning, 0),
        ):
            if value < least:
                raise InputError(f"{name} must be at least {least}; given {value}")
        check_settings(MemoryConfig(window=window, novelty_percentile=novelty_percentile))
        self._store = ImageStore(FIRST_SLOTS, image_shape, device)
        distances = DistanceWindow(size=window, quantile=novelty_percentile)
        super().__init__(stm_centroids, stm_centroids, image_shape, embedding_dim, self._store, distances, seed)
        self._full = patches_per_centroid
        self._least = least_patches
        self._thinning = thinning

    # -- what one can ask ------------------------------------------------------------------------------------------

    @property
    def capacity(self) -> int:
        """Most patches in the short-term memory; the long-term ones come on top, without a bound."""
        return self._stm_size * self._full

    # -- the contract ----------------------------------------------------------------------------------------------

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Nothing: centroids follow the encoder in `after_sleep`."""

    def _draw(self, n: int) -> list[int]:
        return self._ledger.pools[STM].draw(n, self._replay)

    # -- sleep -----------------------------------------------------------------------------------------------------

    def rehearsal(self) -> torch.Tensor:
        """uint8 (n, 3, h, w): what a sleep trains on, the long-term patches and those of short-term centroids with
        more than one: what was seen only once may be noise."""
        twice = [held for held in self._held(STM) if len(held) > 1]
        return self._images.get(chain.from_iterable(twice + self._held(LTM)))

    def after_sleep(self, embed: Embed) -> int:
        """Drop redundant patches and move every centroid to the embedding of its first one; the patches dropped.

        Of a long-term centroid's most similar pair the later patch goes, so that the first one always stays.
        """
        before, ledger = len(self), self._ledger
        short, long = ledger.rows(STM), ledger.rows(LTM)
        for row in short:
            self._images.drop(ledger.keep_only(row, [0]))
        draws = self._insertion.random(len(long))
        thinned = [row for row, drawn in zip(long, draws, strict=True) if drawn < self._chance(len(ledger.held[row]))]
        for start in range(0, len(thinned), CENTROIDS_AT_ONCE):
            some = thinned[start : start + CENTROIDS_AT_ONCE]
            held = [ledger.held[row] for row in some]
            embeddings = embed(self._images.get(chain.from_iterable(held)))
            for row, later in zip(some, later_of_closest(embeddings.detach(), list(map(len, held))), strict=True):
                others = [position for position in range(len(ledger.held[row])) if position != later]
                self._images.drop(ledger.keep_only(row, others))
        rows = short + long
        if rows:
            firsts = embed(self._images.get(ledger.held[row][0] for row in rows)).detach()
            index = torch.tensor(rows, dtype=torch.int64).to(self._values.device)
            self._values.index_copy_(0, index, firsts.to(self._values.device, torch.float32))
        return before - len(self)

    def _chance(self, patches: int) -> float:
        """Probability that a long-term centroid of so many patches loses one."""
        spare = (patches - self._least) / (self._full - self._least)
        return spare**self._thinning if spare > 0 else 0.0

    # -- one patch ---------------------------------------------------------------------------------------------------

    def _insert_one(self, number: int, image: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        ledger = self._ledger
        nearest, distance = geometry.nearest(image, ledger.tier != FREE)
        if not self._stm_was_full or distance > self.threshold:
            self._create(number, image, geometry, tally)
        elif ledger.tier[nearest] == STM:
            ledger.hold(number, nearest)
            tally["joined"] += 1
            if len(ledger.held[nearest]) == self._full:
                ledger.promote(nearest)
                tally["promoted"] += 1
        else:
            tally["rejected"] += 1
        if nearest >= 0:
            self._window.append(distance)

    def _geometry(self, embeddings: torch.Tensor) -> BatchGeometry:
        # Rows for a full short-term memory beside the long-term one, were every patch to promote a centroid.
        have, needed = len(self._values), self._stm_size + self._ledger.count(LTM) + len(embeddings)
        if needed > have:
            more = max(needed, 2 * have) - have
            self._values = torch.cat([self._values, self._values.new_zeros((more, self.embedding_dim))])
            self._ledger.grow(more)
        return BatchGeometry(self._values, torch.linalg.vector_norm(self._values, dim=1), embeddings)

    # -- state -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes. Patches are listed in the order of the sampling pool."""
        return {
            **super().state_dict(),
            "room": self._store.capacity,  # not from the patches alone: bytes are counted, and grew by doubling
            "stm_centroids": self._stm_size,
            "full": self._full,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        saved = (*state["images"].shape[1:], state["values"].shape[1], state["stm_centroids"], state["full"])
        own = (*self.image_shape, self.embedding_dim, self._stm_size, self._full)
        if saved != own:
            names = "patch shape, embedding length, short-term centroids, patches per centroid"
            raise InputError(f"the saved memory does not fit this one ({names}): {saved}, not {own}")
        self._images.clear()
        self._store.make_room(state.get("room", 0))
        super().load_state_dict(state)
