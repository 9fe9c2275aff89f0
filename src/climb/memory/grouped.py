"""What memories share that group images around centroids: how a mini-batch is inserted, replay, and state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any, ClassVar

import torch

from climb.arguments import check_room, checked
from climb.memory.contract import Embed, InsertReport, ReplayBatch
from climb.memory.geometry import BatchGeometry, DistanceWindow
from climb.memory.ledger import LTM, STM, Ledger, centroid_groups
from climb.memory.snapshot import MemorySnapshot, ShowsGroups, Tier
from climb.memory.store import ImagesById, ImageStore
from climb.memory.validate import check_images, checked_embeddings
from climb.parallel import ShardedStore
from climb.seeds import numpy_generator


class GroupedMemory(ShowsGroups, ABC):
    """Images in groups around short-term and long-term centroids. Subclasses define what happens to one image.

    Centroid values are on the device, bookkeeping is on the host. `BatchGeometry` connects both with one
    synchronisation per mini-batch, and a few per merge.

    Args:
        rows: centroids that there is room for.
        stm_centroids: maximum number of short-term centroids.
        image_shape: (3, H, W).
        embedding_dim: length of an embedding.
        store: an empty store of images.
        window: an empty window of distances; its quantile is the threshold.
        seed: seed of the random choices.
    """

    ledger_class: ClassVar[type[Ledger]] = Ledger
    evicts_by: ClassVar[str] = "updated"
    """Array of the ledger: the short-term centroid with the least value makes room for a new one."""

    def __init__(
        self,
        rows: int,
        stm_centroids: int,
        image_shape: tuple[int, ...],
        embedding_dim: int,
        store: ImageStore | ShardedStore,
        window: DistanceWindow,
        seed: int,
    ) -> None:
        self.image_shape = tuple(image_shape)
        self.embedding_dim = embedding_dim
        check_room(4 * embedding_dim * rows, f"{rows} centroids of length {embedding_dim}", store.device)
        self._values = torch.zeros((rows, embedding_dim), dtype=torch.float32, device=store.device)
        self._ledger = self.ledger_class(rows)
        self._stm_size = stm_centroids
        self._images = ImagesById(store)
        self._window = window
        self._stm_was_full = False
        self._seen = 0
        self._insertion = numpy_generator(seed, "memory")
        self._replay = numpy_generator(seed, "replay")

    # -- inspection ----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._ledger.row_of)

    @property
    def nbytes(self) -> int:
        """Bytes of images and centroid values, reserved space included."""
        return self._images.store.nbytes + self._values.nbytes

    @property
    def threshold(self) -> float:
        """Distance above which an image is novel; nan before the first distance."""
        return self._window.quantile

    @property
    def stm(self) -> Tier:
        """A copy of the short-term memory."""
        return self._tier(STM)

    @property
    def ltm(self) -> Tier:
        """A copy of the long-term memory."""
        return self._tier(LTM)

    def summary(self) -> dict[str, float]:
        """Images and centroids by tier, and the threshold."""
        short = self._held(STM)  # there may be many more long-term centroids
        images = sum(map(len, short))
        return {
            "stm_images": images,
            "ltm_images": len(self) - images,
            "stm_centroids": len(short),
            "ltm_centroids": self._ledger.count(LTM),
            "threshold": self.threshold,
        }

    def _held(self, tier: int) -> list[list[int]]:
        """Ids of the images of each centroid of a tier."""
        return [self._ledger.held[row] for row in self._ledger.rows(tier)]

    def _tier(self, tier: int) -> Tier:
        rows = self._ledger.rows(tier)
        values = self._values[torch.tensor(rows, dtype=torch.int64, device=self._values.device)]
        return Tier.of(values, self._held(tier), self._ledger.updated[rows], self._ledger.centroid[rows])

    def stored_ids(self) -> list[int]:
        """Ids of all stored images: their positions in the stream."""
        return list(self._images.slot_of)

    def images_of(self, ids: list[int]) -> torch.Tensor:
        """A copy of the stored images of these ids, uint8 (n, 3, H, W)."""
        return self._images.get(ids)

    # -- contract ------------------------------------------------------------------------------------------------

    def insert(
        self, images: torch.Tensor, embeddings: torch.Tensor | None, *, embed: Embed | None = None
    ) -> InsertReport:
        """Insert one stream mini-batch: uint8 images (n, 3, H, W), embeddings (n, d)."""
        check_images(images, self.image_shape)
        embeddings = checked_embeddings(embeddings, (len(images), self.embedding_dim), self._values.device)
        first = self._seen
        geometry = self._geometry(embeddings)
        tally: Counter[str] = Counter()
        for image in range(len(images)):
            self._seen += 1
            self._insert_one(first + image, image, geometry, tally)
        geometry.flush()
        # Copy images last: those that left again within the mini-batch need no slot.
        kept = [number for number in range(first, self._seen) if number in self._ledger.row_of]
        rows = torch.tensor([number - first for number in kept], dtype=torch.int64).to(images.device)
        self._images.put(kept, images.index_select(0, rows))
        return InsertReport(**tally)

    @checked(n=0)
    def sample(self, n: int) -> ReplayBatch | None:
        """``n`` different stored images; None while fewer are stored."""
        if len(self) < max(n, 1):
            return None
        ids = self._draw(n)
        return ReplayBatch(images=self._images.get(ids), ids=torch.tensor(ids, dtype=torch.int64))

    @abstractmethod
    def _draw(self, n: int) -> list[int]:
        """Ids of ``n`` different stored images."""

    # -- one image -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _insert_one(self, number: int, image: int, geometry: BatchGeometry, tally: Counter[str]) -> None:
        """Insert one image: ``number`` counts all images, ``image`` those of the mini-batch."""

    @abstractmethod
    def _geometry(self, embeddings: torch.Tensor) -> BatchGeometry:
        """Distances between the embeddings (n, d) of a mini-batch and the centroids."""

    def _create(self, number: int, image: int, geometry: BatchGeometry, tally: Counter[str]) -> int:
        """Create a short-term centroid for an image; returns its row."""
        ledger = self._ledger
        if ledger.count(STM) == self._stm_size:
            self._evict(ledger.least(self.evicts_by), number, tally)
        row = ledger.open(number)
        ledger.hold(number, row)
        geometry.move(row, image, 1.0)
        tally["novel"] += 1
        self._stm_was_full = self._stm_was_full or ledger.count(STM) == self._stm_size
        return row

    def _evict(self, row: int, number: int, tally: Counter[str]) -> None:
        self._images.drop(self._ledger.keep_only(row, []))
        self._ledger.close(row)
        tally["evicted"] += 1

    # -- state ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The complete state. Images are in the order of the ledger's pools."""
        return {
            "images": self._images.copied(self._ledger.stored()),
            "values": self._values.clone(),
            **self._ledger.state_dict(),
            "window": torch.tensor(self._window.distances(), dtype=torch.float64),
            "stm_was_full": self._stm_was_full,
            "seen": self._seen,
            "insertion": self._insertion.bit_generator.state,
            "replay": self._replay.bit_generator.state,
        }

    @classmethod
    def snapshot_of(cls, state: dict[str, Any]) -> MemorySnapshot:
        """The groups in a `state_dict`, one per centroid."""
        pools = dict.fromkeys(cls.ledger_class.pool_names.values())
        ids = torch.cat([state[name] for name in pools])
        return MemorySnapshot(seen=state["seen"], groups=centroid_groups(state, ids))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        self._values = state["values"].to(self._values.device, torch.float32, copy=True)
        self._ledger.load_state_dict(state)
        self._images.clear()
        self._images.put(self._ledger.stored(), state["images"])
        self._window.restore(state["window"].tolist())
        self._stm_was_full = state["stm_was_full"]
        self._seen = state["seen"]
        self._insertion.bit_generator.state = state["insertion"]
        self._replay.bit_generator.state = state["replay"]
