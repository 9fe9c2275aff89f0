"""The memory as the released code behaves, faults included, so that its numbers can be explained.

What differs from `CentroidMemory` (and from the paper) is marked "Fault:" where it happens. Use it for nothing else:
it stores images twice and more of them than its capacity, and pulls centroids toward images that are not theirs.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from climb.errors import InputError
from climb.memory.contract import Embed, InsertReport, ReplayBatch, Space
from climb.memory.events import Event, EventLog
from climb.memory.limits import check_rules, check_sizes
from climb.memory.reference_similarity import CachedSimilarities
from climb.memory.reference_slot import TRANSFERRED, Slot, snapshot
from climb.memory.store import check_images, checked_embeddings
from climb.memory.tier import Tier
from climb.seeds import numpy_generator

COPIES_OF_A_DISTANCE = 10


class ReferenceMemory:
    """`CentroidMemory`'s arguments, the released code's behaviour. Not bounded: pruning runs between mini-batches.

    >>> memory = ReferenceMemory(40, (3, 8, 8), 16, stm_centroids=8, ltm_centroids=4, images_per_centroid=5)
    >>> report = memory.insert(torch.zeros(10, 3, 8, 8, dtype=torch.uint8), torch.randn(10, 16))
    >>> report.novel, report.rejected, memory.threshold  # dropped after the fill: the threshold is not a number
    (8, 2, nan)
    """

    space: ClassVar[Space | None] = "projector"
    inserts: ClassVar[Literal["after", "before"]] = "after"
    bounded: ClassVar[bool] = False

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
        self.threshold = math.nan
        self._stm_size = stm_centroids
        self._ltm_size = ltm_centroids
        self._full = images_per_centroid
        self._percentile = novelty_percentile
        self._stm_rate = stm_rate
        self._ltm_accept = ltm_accept
        self.pruning = prune
        self._device = torch.device(device)
        self._stm: list[Slot] = []
        self._ltm: list[Slot] = []
        self._similarities = CachedSimilarities()
        self._images: dict[int, torch.Tensor] = {}
        self._window: deque[float] = deque(maxlen=window)
        self._events = EventLog()
        self._seen = 0
        self._created = 0
        self._copies = 0
        self._insertion = numpy_generator(seed, "memory")
        self._replay = numpy_generator(seed, "replay")

    @property
    def nbytes(self) -> int:
        """Bytes held for images and centroid values."""
        centroids = len(self._stm) + len(self._ltm)
        return len(self) * math.prod(self.image_shape) + centroids * 4 * self.embedding_dim

    def __len__(self) -> int:
        return len(self._images)

    @property
    def stm(self) -> Tier:
        """The short-term memory, in the order of its slots."""
        return snapshot(self._stm, self.embedding_dim)

    @property
    def ltm(self) -> Tier:
        """The long-term memory, in the order of promotion."""
        return snapshot(self._ltm, self.embedding_dim)

    def events(self) -> list[Event]:
        """(image number, kind, centroid id) of the most recent events, oldest first."""
        return self._events.listed()

    def summary(self) -> dict[str, float]:
        """The numbers worth a plot."""
        return {
            "stm_images": sum(len(slot.images) for slot in self._stm),
            "ltm_images": sum(len(slot.images) for slot in self._ltm),
            "stm_centroids": len(self._stm),
            "ltm_centroids": len(self._ltm),
            "threshold": self.threshold,
        }

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Take one stream mini-batch: uint8 images (n, 3, H, W), embeddings (n, d); ``embed`` serves pruning."""
        check_images(images, self.image_shape)
        host = checked_embeddings(embeddings, (len(images), self.embedding_dim), "cpu")
        tally: Counter[str] = Counter()
        for image, z in zip(images, host, strict=True):
            self._insert_one(image, z, tally)
        # Fault: the bound is looked at once per mini-batch, and pruning starts at N images, not above N.
        if len(self) >= self.capacity:
            self._prune(embed, tally)
        return InsertReport(**tally)

    def _insert_one(self, image: torch.Tensor, z: torch.Tensor, tally: Counter[str]) -> None:
        number = self._seen
        self._seen += 1
        # Fault: a slot not yet used is at distance nan, and so is the minimum: no real distance while filling.
        nearest, distance = None, math.nan
        if len(self._stm) == self._stm_size:
            # The short-term memory comes first, so a transferred twin wins its tie with its long-term copy.
            centroids = self._stm + self._ltm
            values = torch.stack([slot.value for slot in centroids])
            distances = 1 - torch.nn.functional.cosine_similarity(values, z[None], dim=1)
            row = int(distances.argmin())
            nearest, distance = centroids[row], float(distances[row])

        if nearest is None or distance > self.threshold:
            self._create(number, image, z, tally)
        elif math.isnan(self.threshold):
            # Fault: compared with a threshold that is nan, an image is neither novel nor a match, and is dropped.
            tally["rejected"] += 1
        elif nearest in self._stm:
            self._match_stm(nearest, number, image, z, tally)
        else:
            self._match_ltm(nearest, number, image, tally)

        # Fault: every distance enters ten times, so the window spans a tenth of the images it should.
        self._window.extend([distance] * COPIES_OF_A_DISTANCE)
        # numpy sorts nan last: the threshold is nan until few enough are left above the percentile.
        ordered = np.sort(np.array(self._window))
        index = (len(ordered) - 1) * self._percentile
        low, high = math.floor(index), math.ceil(index)
        self.threshold = float(ordered[low] + (index - low) * (ordered[high] - ordered[low]))

    def _create(self, number: int, image: torch.Tensor, z: torch.Tensor, tally: Counter[str]) -> None:
        # Fault: the counter of matches starts at 0 while filling and at 1 later, so images and matches differ.
        filling = len(self._stm) < self._stm_size
        slot = Slot(id=self._created, value=z.clone(), images=[number], updated=number, matches=0 if filling else 1)
        if filling:
            self._stm.append(slot)
        else:
            position = min(range(len(self._stm)), key=lambda i: self._stm[i].updated)
            self._forget(self._stm[position].images)
            self._note(number, "evicted", self._stm[position].id, tally)
            self._stm[position] = slot
        self._keep(number, image)
        self._events.append(number, "created", self._created)
        self._created += 1
        tally["novel"] += 1

    def _match_stm(self, slot: Slot, number: int, image: torch.Tensor, z: torch.Tensor, tally: Counter[str]) -> None:
        # Fault: what should skip a transferred slot tests slot 0, whichever slot matched. While slot 0 is
        # transferred nothing joins the short-term memory; any other transferred slot goes on as if it were not.
        if self._stm[0].matches == TRANSFERRED:
            tally["rejected"] += 1
            return
        slot.value = (1 - self._stm_rate) * slot.value + self._stm_rate * z
        slot.updated = number
        slot.matches += 1
        if len(slot.images) < self._full:
            slot.images.append(number)
            self._keep(number, image)
            tally["joined"] += 1
        else:
            tally["rejected"] += 1
        # Fault: promotion counts matches, not images.
        if slot.matches >= self._full:
            self._promote(slot, number, tally)

    def _match_ltm(self, slot: Slot, number: int, image: torch.Tensor, tally: Counter[str]) -> None:
        if len(slot.images) < self._full:
            slot.images.append(number)
            tally["joined"] += 1
        elif self._insertion.random() < self._ltm_accept:
            position = int(self._insertion.integers(self._full))
            self._forget([slot.images[position]])
            slot.images[position] = number
            tally["replaced"] += 1
        else:
            tally["rejected"] += 1
            return
        slot.updated = number
        self._keep(number, image)

    def _promote(self, slot: Slot, number: int, tally: Counter[str]) -> None:
        self._note(number, "promoted", slot.id, tally)
        promoted = Slot(id=self._created, value=slot.value.clone(), images=slot.images, updated=number, matches=0)
        self._created += 1
        # Fault: the short-term slot is not freed. It keeps its value and its anchor, which is now stored twice;
        # the second copy has an id of its own, below zero.
        self._copies += 1
        self._keep(-self._copies, self._images[slot.images[0]])
        slot.images = [-self._copies]
        slot.matches = TRANSFERRED
        self._ltm.append(promoted)
        # Fault: similarities are cached. Here one row is new; the others stay as they were when last computed.
        self._similarities.add(self._ltm_values())
        if len(self._ltm) > self._ltm_size:
            self._merge(number, tally)

    def _merge(self, number: int, tally: Counter[str]) -> None:
        one, other = self._similarities.closest()
        survivor, absorbed = self._ltm[one], self._ltm.pop(other)
        pool = survivor.images + absorbed.images
        if len(pool) > self._full:
            kept = set(self._insertion.choice(len(pool), size=self._full, replace=False).tolist())
            self._forget([image for position, image in enumerate(pool) if position not in kept])
            pool = [image for position, image in enumerate(pool) if position in kept]
        survivor.images = pool
        survivor.value = (survivor.value + absorbed.value) / 2
        survivor.updated = max(survivor.updated, absorbed.updated)
        self._similarities.drop(other)
        self._similarities.compute(self._ltm_values(), one)
        self._note(number, "merged", absorbed.id, tally)

    def _prune(self, embed: Embed | None, tally: Counter[str]) -> None:
        self._note(self._seen - 1, "pruned", -1, tally)
        if self.pruning == "selective":
            # The anchor always stays, so a slot never empties, and the bound may not be met.
            for slot in sorted(self._stm, key=lambda slot: slot.updated):
                while len(slot.images) > 1 and len(self) >= self.capacity:
                    self._forget([slot.images.pop()])
            return
        if embed is None:
            raise InputError("ReferenceMemory re-encodes its images when it prunes; call insert(..., embed=encoder)")
        # Fault: pruning re-encodes every centroid, as the mean over its stored images, before it deletes.
        for slot in self._stm + self._ltm:
            stored = torch.stack([self._images[image] for image in slot.images])
            slot.value = embed(stored).detach().to("cpu", torch.float32).mean(0)
        for row in range(len(self._ltm)):
            self._similarities.compute(self._ltm_values(), row)
        # Fault: counters restart at 0 for a slot that holds an image, and the marks of transfer go with them.
        for slot in self._stm:
            self._forget(slot.images[1:])
            slot.images = slot.images[:1]
            slot.matches = 0

    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` stored images, long-term rows first; an image stored twice may come twice, under two ids."""
        if len(self) < max(n, 1):
            return None
        short = [image for slot in self._stm for image in slot.images]
        long = [image for slot in self._ltm for image in slot.images]
        from_stm = min(n - min(n // 2, len(long)), len(short))
        ids = [long[i] for i in self._replay.choice(len(long), size=n - from_stm, replace=False)] if long else []
        ids += [short[i] for i in self._replay.choice(len(short), size=from_stm, replace=False)]
        return ReplayBatch(images=torch.stack([self._images[image] for image in ids]), ids=torch.tensor(ids))

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Embeddings (n, d) of replayed images, given to the wrong centroids."""
        slot_of = {image: slot for slot in self._stm + self._ltm for image in slot.images}
        known = [image for image in ids.tolist() if image in slot_of]
        rows = embeddings.detach().to("cpu", torch.float32)
        rows = rows[[position for position, image in enumerate(ids.tolist()) if image in slot_of]]
        # Fault: the rows are long-term images and then short-term ones; they are read the other way round.
        short = [image for image in known if slot_of[image] in self._stm]
        long = [image for image in known if slot_of[image] not in self._stm]
        pulls: dict[Slot, list[torch.Tensor]] = {}
        for image, row in zip(short + long, rows, strict=True):
            pulls.setdefault(slot_of[image], []).append(row)
        for slot, pull in pulls.items():
            slot.pull(pull)

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "stm": [slot.state_dict() for slot in self._stm],
            "ltm": [slot.state_dict() for slot in self._ltm],
            "cosines": self._similarities.cosines.clone(),
            "image_ids": list(self._images),
            "images": torch.stack(list(self._images.values())) if self._images else torch.zeros(0),
            "window": torch.tensor(list(self._window), dtype=torch.float64),
            "threshold": self.threshold,
            "events": [list(event) for event in self._events.listed()],
            "seen": self._seen,
            "created": self._created,
            "copies": self._copies,
            "insertion": self._insertion.bit_generator.state,
            "replay": self._replay.bit_generator.state,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._stm = [Slot.from_state(slot) for slot in state["stm"]]
        self._ltm = [Slot.from_state(slot) for slot in state["ltm"]]
        self._similarities.cosines = state["cosines"].to("cpu", copy=True)
        images = state["images"].to(self._device, copy=True)
        self._images = dict(zip(state["image_ids"], images, strict=True))
        self._window.clear()
        self._window.extend(state["window"].tolist())
        self.threshold = state["threshold"]
        self._events.clear()
        self._events.extend((number, kind, centroid) for number, kind, centroid in state["events"])
        self._seen, self._created, self._copies = state["seen"], state["created"], state["copies"]
        self._insertion.bit_generator.state = state["insertion"]
        self._replay.bit_generator.state = state["replay"]

    def _keep(self, name: int, image: torch.Tensor) -> None:
        self._images[name] = image.to(self._device, copy=True)

    def _forget(self, names: list[int]) -> None:
        for name in names:
            del self._images[name]

    def _ltm_values(self) -> torch.Tensor:
        return torch.stack([slot.value for slot in self._ltm])

    def _note(self, number: int, kind: str, centroid: int, tally: Counter[str]) -> None:
        self._events.append(number, kind, centroid)
        tally[kind] += 1
