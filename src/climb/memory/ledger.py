"""Bookkeeping on the host: which centroid holds which image, the pools that replay draws from, past events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch

from climb.memory.snapshot import Group, TierName, images_by_id


class IdPool:
    """A set of image ids with constant-time add, remove and draw.

    Ids are in a dense list; removal moves the last id into the gap.

    >>> pool = IdPool([3, 5, 8])
    >>> pool.remove(3)
    >>> sorted(pool.draw(2, np.random.default_rng(0)))
    [5, 8]
    """

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self.ids = list(ids)
        self._position = {image: position for position, image in enumerate(self.ids)}

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, image: int) -> None:
        """Add an id."""
        self._position[image] = len(self.ids)
        self.ids.append(image)

    def remove(self, image: int) -> None:
        """Remove an id."""
        position = self._position.pop(image)
        last = self.ids.pop()
        if last != image:
            self.ids[position] = last
            self._position[last] = position

    def draw(self, n: int, generator: np.random.Generator) -> list[int]:
        """``n`` different ids, drawn uniformly."""
        return [self.ids[position] for position in generator.choice(len(self.ids), size=n, replace=False)]


EVENTS = ("created", "evicted", "promoted", "merged", "pruned")
EVENTS_KEPT = 65_536

Event = tuple[int, str, int]
"""Image number, kind, centroid id."""


class EventLog:
    """The most recent events of a memory, 24 bytes each.

    >>> log = EventLog(kept=2)
    >>> for event in [(3, "created", 0), (5, "created", 1), (9, "promoted", 0)]:
    ...     log.append(*event)
    >>> log.listed()
    [(5, 'created', 1), (9, 'promoted', 0)]
    """

    def __init__(self, kept: int = EVENTS_KEPT) -> None:
        self._rows = np.zeros((kept, 3), dtype=np.int64)  # takes memory where it has been written
        self._written = 0

    def append(self, number: int, kind: str, centroid: int) -> None:
        """Add an event; a full log drops its oldest one."""
        self._rows[self._written % len(self._rows)] = (number, EVENTS.index(kind), centroid)
        self._written += 1

    def listed(self) -> list[Event]:
        """The events, oldest first."""
        return [(number, EVENTS[kind], centroid) for number, kind, centroid in self.to_tensor().tolist()]

    def to_tensor(self) -> torch.Tensor:
        """The events as int64 (n, 3): image number, index in `EVENTS`, centroid id."""
        kept = np.arange(max(0, self._written - len(self._rows)), self._written)
        return torch.from_numpy(self._rows[kept % len(self._rows)])

    def from_tensor(self, events: torch.Tensor) -> None:
        """Restore the events that `to_tensor` returned."""
        self._written = len(events)
        self._rows[: len(events)] = events.cpu().numpy()


FREE, STM, LTM = 0, 1, 2
TIER_NAMES: dict[int, TierName] = {STM: "short-term", LTM: "long-term"}


class Ledger:
    """Which centroid holds which images, and in which tier.

    Both tiers share L + K rows, one per centroid; promotion changes the tier of a row. These rows suffice: the
    promotion that overfills the long-term memory has just left the short-term one.

    >>> ledger = Ledger(3)
    >>> row = ledger.open(number=7)
    >>> ledger.hold(7, row)
    >>> ledger.rows(STM), ledger.held[row], ledger.stored()
    ([0], [7], [7])
    """

    pool_names: ClassVar[dict[int, str]] = {STM: "stm_pool", LTM: "ltm_pool"}
    """The pool of a tier's images, by its name in a saved state. Tiers may share one."""
    saved: ClassVar[tuple[str, ...]] = ("tier", "updated", "centroid", "born")
    """The arrays in a saved state, with one entry per row."""

    def __init__(self, rows: int) -> None:
        self.tier = np.zeros(rows, dtype=np.int8)
        self.updated = np.zeros(rows, dtype=np.int64)  # number of the last image that joined
        self.born = np.full(rows, -1, dtype=np.int64)  # number of the image that created the centroid; -1: unknown
        self.centroid = np.full(rows, -1, dtype=np.int64)  # ids of the centroids, in order of creation
        self.held: list[list[int]] = [[] for _ in range(rows)]  # image ids, the anchor first
        self.row_of: dict[int, int] = {}  # image id -> row, for all stored images
        self.pools = self._named_pools(dict.fromkeys(self.pool_names.values(), ()))

    def _named_pools(self, ids: Mapping[str, Iterable[int]]) -> dict[int, IdPool]:
        pools = {name: IdPool(each) for name, each in ids.items()}
        return {tier: pools[name] for tier, name in self.pool_names.items()}

    def grow(self, rows: int) -> None:
        """Add free rows."""
        free = Ledger(rows)
        for name in Ledger.saved:
            setattr(self, name, np.concatenate([getattr(self, name), getattr(free, name)]))
        self.held += free.held

    def count(self, tier: int) -> int:
        """Number of centroids in a tier."""
        return int((self.tier == tier).sum())

    def rows(self, tier: int) -> list[int]:
        """Rows of a tier, oldest centroid first."""
        rows = np.flatnonzero(self.tier == tier)
        ordered: list[int] = rows[np.argsort(self.centroid[rows], kind="stable")].tolist()
        return ordered

    def least(self, name: str) -> int:
        """The short-term row with the least value in an array, such as "updated"."""
        return int(np.where(self.tier == STM, getattr(self, name), np.iinfo(np.int64).max).argmin())

    # -- centroids -----------------------------------------------------------------------------------------------

    def open(self, number: int) -> int:
        """Turn a free row into an empty short-term centroid, created by image ``number``; returns the row."""
        row = int(np.flatnonzero(self.tier == FREE)[0])
        self.tier[row], self.born[row] = STM, number
        return row

    def promote(self, row: int) -> None:
        """Move a centroid and its images to the long-term memory."""
        for image in self.held[row]:
            self.pools[STM].remove(image)
            self.pools[LTM].add(image)
        self.tier[row] = LTM

    def absorb(self, survivor: int, absorbed: int) -> None:
        """Append the images of ``absorbed`` to those of ``survivor`` and free its row."""
        for image in self.held[absorbed]:
            self.row_of[image] = survivor
        self.held[survivor] = self.held[survivor] + self.held[absorbed]
        self.updated[survivor] = max(self.updated[survivor], self.updated[absorbed])
        self.held[absorbed] = []
        self.close(absorbed)

    def close(self, row: int) -> None:
        """Free the row of a centroid without images."""
        self.tier[row], self.centroid[row] = FREE, -1

    # -- images --------------------------------------------------------------------------------------------------

    def hold(self, image: int, row: int) -> None:
        """Add a new image to a centroid."""
        self.held[row].append(image)
        self._enter(image, row)

    def replace(self, image: int, row: int, position: int) -> int:
        """Put a new image at the position of a stored one; returns the image that left."""
        gone = self.held[row][position]
        self._leave(gone)
        self.held[row][position] = image
        self._enter(image, row)
        return gone

    def keep_only(self, row: int, positions: list[int]) -> list[int]:
        """Keep only the images at these positions, in their order; returns the images that left."""
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
        """Ids of all stored images: the short-term pool, then the long-term pool if it is another one."""
        return [image for pool in dict.fromkeys(self.pools.values()) for image in pool.ids]

    def state_dict(self) -> dict[str, Any]:
        """The complete state."""
        return {
            **{self.pool_names[tier]: torch.tensor(pool.ids, dtype=torch.int64) for tier, pool in self.pools.items()},
            "held": torch.tensor([image for held in self.held for image in held], dtype=torch.int64),
            "counts": torch.tensor([len(held) for held in self.held], dtype=torch.int64),
            **{name: torch.from_numpy(getattr(self, name).copy()) for name in self.saved},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state of `state_dict`."""
        free = Ledger(len(state["tier"]))
        for name in Ledger.saved:  # older states lack births
            setattr(self, name, state[name].cpu().numpy().copy() if name in state else getattr(free, name))
        self.pools = self._named_pools({name: state[name].tolist() for name in self.pool_names.values()})
        self.held = [part.tolist() for part in torch.split(state["held"], state["counts"].tolist())]
        self.row_of = {image: row for row, held in enumerate(self.held) for image in held}


def centroid_groups(state: dict[str, Any], ids: torch.Tensor) -> list[Group]:
    """The groups of a memory that keeps one row per centroid; ``ids`` (n,) are those of ``state["images"]``.

    ``state`` holds images, values, tier, held and counts, and optionally centroid, updated, born and events.
    """
    select = images_by_id(state["images"], ids.tolist())
    events = state["events"].tolist() if "events" in state else []
    created = {centroid: number for number, kind, centroid in events if EVENTS[kind] == "created"}
    oldest = events[0][0] if events else None  # only the latest events are kept
    groups = []
    for row, held in enumerate(state["held"].split(state["counts"].tolist())):
        if not len(held):
            continue
        centroid = int(state["centroid"][row]) if "centroid" in state else None
        # -1 and a missing key come from states written before births were recorded.
        recorded = int(state["born"][row]) if "born" in state else -1
        born = recorded if recorded >= 0 else created.get(centroid)
        groups.append(
            Group(
                tier=TIER_NAMES[int(state["tier"][row])],
                centroid=centroid,
                numbers=held.tolist(),
                images=select(held.tolist()),
                value=state["values"][row],
                born=born,
                born_before=oldest if born is None else None,
                updated=int(state["updated"][row]) if "updated" in state else None,
            )
        )
    return groups
