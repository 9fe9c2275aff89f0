"""A source of images: found, loaded ahead, handed out one by one."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Generator, Iterator
from threading import Event

from climb.sources.item import Claim, Item, PassedOver, Pending, Read
from climb.sources.prefetch import Arrival, Prefetch

LOGGED = 20  # images passed over for one reason that are named in the log; all are counted
log = logging.getLogger("climb.sources")


class Source:
    """Images of one size, whatever they are read from. Iterating gives `Item`s; each iteration starts over.

    Args:
        read: finds the images.
        name: what people call the source.
        rereadable: whether the same images can be found again after a crash.
        endless: whether it waits for more where others end.
        live: whether it goes on when nobody reads, so that images must be dropped.
        workers: threads that load images.
    """

    def __init__(
        self,
        read: Read,
        *,
        name: str,
        rereadable: bool,
        endless: bool = False,
        live: bool = False,
        workers: int = 2,
    ) -> None:
        self.name = name
        self.rereadable = rereadable
        self.endless = endless
        self.passed_over: Counter[str] = Counter()
        self.dropped = 0
        self._read = read
        self.live = live
        self._workers = workers

    def __iter__(self) -> Iterator[Item]:
        return (arrival for arrival in self.arrivals() if isinstance(arrival, Item))

    def arrivals(
        self, *, patience: float | None = None, claim: Claim | None = None, ending: Event | None = None
    ) -> Generator[Arrival]:
        """Images and word of those passed over, which are counted and logged.

        Args:
            patience: seconds without anything after which None is given; None waits for ever.
            claim: says which images are new; by default all are, and once only where a source repeats itself.
            ending: set it to have nothing further read; what was read already still arrives.
        """
        asked = claim or (Once() if self.endless else Everything())

        def find(stop: Event) -> Iterator[Pending]:
            return self._read(asked, stop)

        # Two batches or so ahead: more would only be lost at a crash.
        prefetch = Prefetch(find, workers=self._workers, depth=32, live=self.live, ending=ending)
        try:
            for arrival in prefetch.arrivals(patience):
                if isinstance(arrival, PassedOver):
                    self._count(arrival)
                self.dropped = prefetch.dropped
                yield arrival
        finally:
            prefetch.close()

    def _count(self, passed: PassedOver) -> None:
        self.passed_over[passed.reason] += 1
        count = self.passed_over[passed.reason]
        if count <= LOGGED:
            log.warning("passed over %s: %s (%s)", passed.where, passed.reason, passed.detail)
        if count == LOGGED:
            log.warning("further images that are %s are counted, not named", passed.reason)


class Everything:
    """A `Claim` to which everything is new, always."""

    def __call__(self, identity: int, /) -> bool:
        """Yes."""
        return True

    is_new = __call__

    def release(self, identity: int, /) -> None:
        """It is new already."""


class Once:
    """A `Claim` to which everything is new, once.

    >>> claim = Once()
    >>> claim(7), claim(7), claim.is_new(7)
    (True, False, False)
    >>> claim.release(7); claim.is_new(7), claim(7)
    (True, True)
    """

    def __init__(self) -> None:
        self._known: set[int] = set()

    def __call__(self, identity: int, /) -> bool:
        """Whether it has not been claimed; now it is."""
        new = identity not in self._known
        self._known.add(identity)
        return new

    def is_new(self, identity: int, /) -> bool:
        """Whether it has not been claimed."""
        return identity not in self._known

    def release(self, identity: int, /) -> None:
        """It is new again."""
        self._known.discard(identity)
