"""Who holds what: centroids by row, the ids of their images, and the two pools that replay draws from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from climb.memory.pool import IdPool

FREE, STM, LTM = 0, 1, 2


class Ledger:
    """The memory's books, on the host.

    One row per centroid, short-term and long-term alike: promotion changes the tier, not the row. L + K rows suffice,
    since a promotion that overfills the long-term memory has just left the short-term one.

    >>> ledger = Ledger(3)
    >>> row = ledger.open(centroid=0, number=7)
    >>> ledger.hold(7, row)
    >>> ledger.rows(STM), ledger.held[row], len(ledger)
    ([0], [7], 1)
    """

    def __init__(self, rows: int) -> None:
        self.tier = np.zeros(rows, dtype=np.int8)
        self.updated = np.zeros(rows, dtype=np.int64)  # number of the last image taken in
        self.born = np.zeros(rows, dtype=np.int64)  # number of the image that created the centroid; -1: not known
        self.centroid = np.full(rows, -1, dtype=np.int64)  # the centroids' own ids, in order of creation
        self.held: list[list[int]] = [[] for _ in range(rows)]  # image ids, the anchor first
        self.row_of: dict[int, int] = {}  # image id -> row; who is stored
        self.pools = {STM: IdPool(), LTM: IdPool()}

    def __len__(self) -> int:
        return len(self.row_of)

    def count(self, tier: int) -> int:
        """Centroids of a tier."""
        return int((self.tier == tier).sum())

    def rows(self, tier: int) -> list[int]:
        """Rows of a tier, oldest centroid first."""
        rows = np.flatnonzero(self.tier == tier)
        ordered: list[int] = rows[np.argsort(self.centroid[rows])].tolist()
        return ordered

    def least_recent(self) -> int:
        """The short-term row whose last image came first."""
        return int(np.where(self.tier == STM, self.updated, np.iinfo(np.int64).max).argmin())

    # -- centroids -----------------------------------------------------------------------------------------------

    def open(self, centroid: int, number: int) -> int:
        """A free row, now a short-term centroid without images, created by image ``number``."""
        row = int(np.flatnonzero(self.tier == FREE)[0])
        self.tier[row] = STM
        self.centroid[row] = centroid
        self.born[row] = number
        return row

    def promote(self, row: int) -> None:
        """The centroid becomes long-term, with its images."""
        for image in self.held[row]:
            self.pools[STM].remove(image)
            self.pools[LTM].add(image)
        self.tier[row] = LTM

    def absorb(self, survivor: int, absorbed: int) -> None:
        """The images of one centroid go over to another, whose list they follow; the row of the first is free."""
        for image in self.held[absorbed]:
            self.row_of[image] = survivor
        self.held[survivor] = self.held[survivor] + self.held[absorbed]
        self.updated[survivor] = max(self.updated[survivor], self.updated[absorbed])
        self.held[absorbed] = []
        self.close(absorbed)

    def close(self, row: int) -> None:
        """The row of a centroid without images is free again."""
        self.tier[row] = FREE
        self.centroid[row] = -1

    # -- images --------------------------------------------------------------------------------------------------

    def hold(self, image: int, row: int) -> None:
        """A new image joins a centroid."""
        self.held[row].append(image)
        self._enter(image, row)

    def replace(self, image: int, row: int, position: int) -> int:
        """A new image takes the place of another; the one that left."""
        gone = self.held[row][position]
        self._leave(gone)
        self.held[row][position] = image
        self._enter(image, row)
        return gone

    def keep_only(self, row: int, positions: list[int]) -> list[int]:
        """The centroid keeps the images at these positions, in the order they have; the ones that left."""
        kept = set(positions)
        gone = [image for position, image in enumerate(self.held[row]) if position not in kept]
        self.held[row] = [image for position, image in enumerate(self.held[row]) if position in kept]
        for image in gone:
            self._leave(image)
        return gone

    def _enter(self, image: int, row: int) -> None:
        self.row_of[image] = row
        self.pools[int(self.tier[row])].add(image)
        self.updated[row] = image

    def _leave(self, image: int) -> None:
        self.pools[int(self.tier[self.row_of.pop(image)])].remove(image)

    # -- state ---------------------------------------------------------------------------------------------------

    def stored(self) -> list[int]:
        """Ids of all stored images, in the order of the two pools."""
        return self.pools[STM].ids + self.pools[LTM].ids

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {
            "stm_pool": torch.tensor(self.pools[STM].ids, dtype=torch.int64),
            "ltm_pool": torch.tensor(self.pools[LTM].ids, dtype=torch.int64),
            "held": torch.tensor([image for held in self.held for image in held], dtype=torch.int64),
            "counts": torch.tensor([len(held) for held in self.held], dtype=torch.int64),
            "tier": torch.from_numpy(self.tier.copy()),
            "updated": torch.from_numpy(self.updated.copy()),
            "centroid": torch.from_numpy(self.centroid.copy()),
            "born": torch.from_numpy(self.born.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.tier[:] = state["tier"].cpu().numpy()
        self.updated[:] = state["updated"].cpu().numpy()
        self.centroid[:] = state["centroid"].cpu().numpy()
        self.born[:] = state["born"].cpu().numpy() if "born" in state else -1  # older states do not tell
        self.pools = {STM: IdPool(state["stm_pool"].tolist()), LTM: IdPool(state["ltm_pool"].tolist())}
        self.held = [part.tolist() for part in torch.split(state["held"], state["counts"].tolist())]
        self.row_of = {image: row for row, held in enumerate(self.held) for image in held}
