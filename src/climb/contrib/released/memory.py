"""The memory of the released code with its faults, so that its numbers can be explained.

Comments that start with "Fault:" mark each difference from `CentroidMemory` and the paper. Do not use it for anything
else: it stores images twice, exceeds its capacity, and moves centroids toward images of other centroids.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from dataclasses import asdict
from typing import Any, ClassVar

import torch

from climb.contrib.released.slots import TRANSFERRED, CachedSimilarities, NanWindow, Slot
from climb.errors import InputError
from climb.memory.centroid import CentroidMemory
from climb.memory.contract import Embed, InsertReport, memory
from climb.memory.geometry import DistanceWindow
from climb.memory.ledger import LTM, STM, TIER_NAMES, EventLog, IdPool
from climb.memory.pairs import most_similar
from climb.memory.snapshot import Group, MemorySnapshot, Tier, images_by_id
from climb.memory.validate import check_images, checked_embeddings

COPIES_OF_A_DISTANCE = 10
KEYS = {"stm": STM, "ltm": LTM}  # of the slots of each tier in a saved state


@memory("released")
class ReferenceMemory(CentroidMemory):
    """The released code's behaviour with `CentroidMemory`'s arguments. Not bounded: it prunes between mini-batches.

    >>> memory = ReferenceMemory(40, (3, 8, 8), 16, stm_centroids=8, ltm_centroids=4, images_per_centroid=5)
    >>> report = memory.insert(torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.randn(10, 16))
    >>> report.novel, report.rejected, memory.threshold  # dropped after the fill: the threshold is not a number
    (8, 2, nan)
    """

    replaces: ClassVar[tuple[type, str]] = (CentroidMemory, "memory_faults")
    sharded: ClassVar[bool] = False
    bounded: ClassVar[bool] = False
    window_class: ClassVar[type[DistanceWindow]] = NanWindow

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._slots: dict[int, list[Slot]] = {STM: [], LTM: []}
        self._similarities = CachedSimilarities()
        self._copies = 0

    @property
    def nbytes(self) -> int:
        """Bytes held for images and centroid values."""
        centroids = len(self._slots[STM]) + len(self._slots[LTM])
        return len(self) * math.prod(self.image_shape) + centroids * 4 * self.embedding_dim

    def __len__(self) -> int:
        return len(self._images.slot_of)

    def summary(self) -> dict[str, float]:
        """Images and centroids by tier, and the threshold."""
        return {**super().summary(), "ltm_centroids": len(self._slots[LTM])}

    def _held(self, tier: int) -> list[list[int]]:
        return [slot.images for slot in self._slots[tier]]

    def _pool(self, tier: int) -> IdPool:
        return IdPool(image for held in self._held(tier) for image in held)

    def _tier(self, tier: int) -> Tier:
        """A copy of a tier: the short-term one in the order of its slots, the long-term one in that of promotion."""
        slots = self._slots[tier]
        return Tier.of(
            self._values_of(tier), self._held(tier), [slot.updated for slot in slots], [slot.id for slot in slots]
        )

    def _values_of(self, tier: int) -> torch.Tensor:
        values = [slot.value for slot in self._slots[tier]]
        return torch.stack(values) if values else torch.zeros(0, self.embedding_dim)

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Take one stream mini-batch: uint8 images (n, 3, H, W), embeddings (n, d); ``embed`` serves pruning."""
        check_images(images, self.image_shape)
        host = checked_embeddings(embeddings, (len(images), self.embedding_dim), "cpu")
        tally: Counter[str] = Counter()
        for image, z in zip(images, host, strict=True):
            self._take(image, z, tally)
        # Fault: the bound is checked once per mini-batch, and pruning starts at N images, not above N.
        if len(self) >= self.capacity:
            self._prune_all(embed, tally)
        return InsertReport(**tally)

    def _take(self, image: torch.Tensor, z: torch.Tensor, tally: Counter[str]) -> None:
        number = self._seen
        self._seen += 1
        short, long = self._slots[STM], self._slots[LTM]
        # Fault: a slot not yet used is at distance nan, and so is the minimum: no real distance while filling.
        nearest, distance, threshold = None, math.nan, self.threshold
        if len(short) == self._stm_size:
            # The short-term memory comes first, so a transferred twin wins its tie with its long-term copy.
            values = torch.cat([self._values_of(STM), self._values_of(LTM)])
            distances = 1 - torch.nn.functional.cosine_similarity(values, z[None], dim=1)
            row = int(distances.argmin())
            nearest, distance = (short + long)[row], float(distances[row])

        if nearest is None or distance > threshold:
            self._start(number, image, z, tally)
        elif math.isnan(threshold):
            # Fault: compared with a threshold that is nan, an image is neither novel nor a match, and is dropped.
            tally["rejected"] += 1
        elif nearest in short:
            self._match_stm(nearest, number, image, z, tally)
        else:
            self._match_ltm(nearest, number, image, tally)

        # Fault: every distance enters ten times, so the window spans a tenth of the images it should.
        for _ in range(COPIES_OF_A_DISTANCE):
            self._window.append(distance)

    def _start(self, number: int, image: torch.Tensor, z: torch.Tensor, tally: Counter[str]) -> None:
        # Fault: the counter of matches starts at 0 while filling and at 1 later, so images and matches differ.
        slots = self._slots[STM]
        filling = len(slots) < self._stm_size
        slot = Slot(id=self._created, value=z.clone(), images=[number], updated=number, matches=0 if filling else 1)
        if filling:
            slots.append(slot)
        else:
            position = min(range(len(slots)), key=lambda i: slots[i].updated)
            self._images.drop(slots[position].images)
            self._note(number, "evicted", slots[position].id, tally)
            slots[position] = slot
        self._images.put([number], image[None])
        self._events.append(number, "created", self._created)
        self._created += 1
        tally["novel"] += 1

    def _match_stm(self, slot: Slot, number: int, image: torch.Tensor, z: torch.Tensor, tally: Counter[str]) -> None:
        # Fault: what should skip a transferred slot tests slot 0, whichever slot matched. While slot 0 is
        # transferred nothing joins the short-term memory; any other transferred slot goes on as if it were not.
        if self._slots[STM][0].matches == TRANSFERRED:
            tally["rejected"] += 1
            return
        slot.value = (1 - self._stm_rate) * slot.value + self._stm_rate * z
        slot.updated = number
        slot.matches += 1
        if len(slot.images) < self._full:
            slot.images.append(number)
            self._images.put([number], image[None])
            tally["joined"] += 1
        else:
            tally["rejected"] += 1
        # Fault: promotion counts matches, not images.
        if slot.matches >= self._full:
            self._transfer(slot, number, tally)

    def _match_ltm(self, slot: Slot, number: int, image: torch.Tensor, tally: Counter[str]) -> None:
        if len(slot.images) < self._full:
            slot.images.append(number)
            tally["joined"] += 1
        elif self._insertion.random() < self._ltm_accept:
            position = int(self._insertion.integers(self._full))
            self._images.drop([slot.images[position]])
            slot.images[position] = number
            tally["replaced"] += 1
        else:
            tally["rejected"] += 1
            return
        slot.updated = number
        self._images.put([number], image[None])

    def _transfer(self, slot: Slot, number: int, tally: Counter[str]) -> None:
        self._note(number, "promoted", slot.id, tally)
        promoted = Slot(id=self._created, value=slot.value.clone(), images=slot.images, updated=number, matches=0)
        self._created += 1
        # Fault: the short-term slot is not freed. It keeps its value and its anchor, which is now stored twice;
        # the second copy has an id of its own, below zero.
        self._copies += 1
        self._images.put([-self._copies], self._images.get(slot.images[:1]))
        slot.images = [-self._copies]
        slot.matches = TRANSFERRED
        self._slots[LTM].append(promoted)
        # Fault: similarities are cached. Here one row is new; the others stay as they were when last computed.
        self._similarities.add(self._values_of(LTM))
        if len(self._slots[LTM]) > self._ltm_size:
            self._merge(number, tally)

    def _merge(self, number: int, tally: Counter[str]) -> None:
        one, other = most_similar(self._similarities.cosines)
        survivor, absorbed = self._slots[LTM][one], self._slots[LTM].pop(other)
        pool = survivor.images + absorbed.images
        if len(pool) > self._full:
            kept = set(self._insertion.choice(len(pool), size=self._full, replace=False).tolist())
            self._images.drop([image for position, image in enumerate(pool) if position not in kept])
            pool = [image for position, image in enumerate(pool) if position in kept]
        survivor.images = pool
        survivor.value = (survivor.value + absorbed.value) / 2
        survivor.updated = max(survivor.updated, absorbed.updated)
        self._similarities.drop(other)
        self._similarities.compute(self._values_of(LTM), one)
        self._note(number, "merged", absorbed.id, tally)

    def _prune_all(self, embed: Embed | None, tally: Counter[str]) -> None:
        self._note(self._seen - 1, "pruned", -1, tally)
        if self.pruning == "selective":
            # The anchor always stays, so a slot never empties, and the bound may not be met.
            for slot in sorted(self._slots[STM], key=lambda slot: slot.updated):
                while len(slot.images) > 1 and len(self) >= self.capacity:
                    self._images.drop([slot.images.pop()])
            return
        if embed is None:
            raise InputError("ReferenceMemory re-encodes its images when it prunes; call insert(..., embed=encoder)")
        # Fault: pruning re-encodes every centroid, as the mean over its stored images, before it deletes.
        for slot in self._slots[STM] + self._slots[LTM]:
            slot.value = embed(self._images.get(slot.images)).detach().to("cpu", torch.float32).mean(0)
        for row in range(len(self._slots[LTM])):
            self._similarities.compute(self._values_of(LTM), row)
        # Fault: counters restart at 0 for a slot that holds an image, and the marks of transfer go with them.
        for slot in self._slots[STM]:
            self._images.drop(slot.images[1:])
            slot.images = slot.images[:1]
            slot.matches = 0

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Embeddings (n, d) of replayed images, given to the wrong centroids."""
        slot_of = {image: slot for tier in self._slots.values() for slot in tier for image in slot.images}
        known = [place for place, image in enumerate(ids.tolist()) if image in slot_of]
        # Fault: the rows are long-term images and then short-term ones; they are read the other way round.
        swapped = sorted(ids[known].tolist(), key=lambda image: slot_of[image] not in self._slots[STM])
        pulls: dict[Slot, list[torch.Tensor]] = {}
        for image, row in zip(swapped, embeddings[known].detach().to("cpu", torch.float32), strict=True):
            pulls.setdefault(slot_of[image], []).append(row)
        for slot, rows in pulls.items():
            rate = 0.5 / len(slot.images)
            slot.value = (1 - len(rows) * rate) * slot.value + rate * torch.stack(rows).sum(0)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            **{key: [asdict(slot) for slot in self._slots[tier]] for key, tier in KEYS.items()},
            "cosines": self._similarities.cosines.clone(),
            "image_ids": list(self._images.slot_of),
            "images": self._images.copied(self._images.slot_of),
            "window": torch.tensor(self._window.distances(), dtype=torch.float64),
            "threshold": self.threshold,
            "events": [list(event) for event in self._events.listed()],
            "seen": self._seen,
            "created": self._created,
            "copies": self._copies,
            "insertion": self._insertion.bit_generator.state,
            "replay": self._replay.bit_generator.state,
        }

    @classmethod
    def snapshot_of(cls, state: dict[str, Any]) -> MemorySnapshot:
        """The groups in a `state_dict`, one per slot that holds images."""
        select = images_by_id(state["images"], state["image_ids"])
        groups = [
            Group(
                tier=TIER_NAMES[tier],
                centroid=slot["id"],
                numbers=list(slot["images"]),
                images=select(slot["images"]),
                value=slot["value"],
                updated=slot["updated"],
            )
            for key, tier in KEYS.items()
            for slot in state[key]
        ]
        return MemorySnapshot(seen=state["seen"], groups=groups)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._slots = {tier: [Slot(**copy.deepcopy(slot)) for slot in state[key]] for key, tier in KEYS.items()}
        self._similarities.cosines = state["cosines"].to("cpu", copy=True)
        self._images.clear()
        self._images.put(state["image_ids"], state["images"])
        self._window.restore(state["window"].tolist())
        self._events = EventLog()
        for event in state["events"]:
            self._events.append(*event)
        self._seen, self._created, self._copies = state["seen"], state["created"], state["copies"]
        self._insertion.bit_generator.state = state["insertion"]
        self._replay.bit_generator.state = state["replay"]


@memory("swapped-refresh")
class SwappedRefreshMemory(CentroidMemory):
    """CLIMB's memory, but replayed images refresh each other's centroids.

    A replayed batch holds long-term images first. The released code reads its embeddings as if short-term images came
    first, so that short-term centroids move toward long-term images and the reverse. `ReferenceMemory` has this fault
    and all others.
    """

    replaces: ClassVar[tuple[type, str]] = (CentroidMemory, "swapped_refresh")

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Step 6 with embeddings (n, d) that belong to other images."""
        row_of, tier = self._ledger.row_of, self._ledger.tier
        known = [place for place, image in enumerate(ids.tolist()) if image in row_of]
        swapped = sorted(ids[known].tolist(), key=lambda image: bool(tier[row_of[image]] != STM))
        super().refresh(torch.tensor(swapped, dtype=torch.int64), embeddings[known])
