"""Files as they appear: complete ones only, and again those that could not be read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from threading import Event

POLL_SECONDS = 0.5
"""Least time between two looks."""
COST = 20.0
"""Times as long as a look takes is the least time between two of its kind: each takes a twentieth of a core at most."""
SETTLED_SECONDS = 2.0
"""A file that nobody has written to for so long is complete."""
MOST_YOUNG = 100_000
"""Files kept in mind that may still be written to; a later look finds the others again."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 600.0
"""Seconds after which a file that could not be read is tried again; doubled each time."""

Found = tuple[str, os.stat_result]
Young = dict[str, tuple[int, int, float]]
"""By path: size and time, and when both were seen."""
Look = Callable[[bool], Iterator[Found]]
"""What is there; given whether to be thorough, or quick where that is possible."""


def settled_seconds(path: str, status: os.stat_result) -> float:
    """How long any file must have been as it is to be complete."""
    return SETTLED_SECONDS


def watched(
    look: Look,
    is_new: Callable[[str, os.stat_result], bool],
    stop: Event,
    needed: Callable[[str, os.stat_result], float] = settled_seconds,
) -> Iterator[Found]:
    """The new files that ``look`` finds, again and again, each as soon as it is complete.

    Polling, and not the kernel's notifications: these do not exist on network file systems, where folders that other
    machines fill usually are. Nor do the clocks of such machines agree: a file that appears is complete once it has
    been seen twice as it is, with ``needed`` seconds between. Only at the first look its own times are believed, or
    starting with a million files would take a second look at each.
    """
    young: Young = {}
    first, next_look, next_thorough = True, 0.0, 0.0
    while not stop.is_set():
        began = mark = time.monotonic()
        if began >= next_look:
            cost, thorough = 0.0, began >= next_thorough
            for path, status in look(thorough):
                if stop.is_set():
                    return
                if path in young or not is_new(path, status):
                    continue
                if first and time.time() - max(status.st_mtime, status.st_ctime) >= needed(path, status):
                    cost += time.monotonic() - mark
                    yield path, status
                    mark = time.monotonic()  # the reader's time is not the look's
                elif len(young) < MOST_YOUNG:
                    young[path] = (status.st_size, status.st_mtime_ns, time.monotonic())
            first, now = False, time.monotonic()
            pause = COST * (cost + now - mark)
            next_look = now + (POLL_SECONDS if thorough else max(POLL_SECONDS, pause))
            if thorough:
                next_thorough = now + max(POLL_SECONDS, pause)
            if len(young) >= MOST_YOUNG:
                next_thorough = now
        for path, status in _grown_up(young, needed):
            if stop.is_set():
                return
            yield path, status
        stop.wait(POLL_SECONDS)


def _grown_up(young: Young, needed: Callable[[str, os.stat_result], float]) -> Iterator[Found]:
    """Those that are as they were long enough ago; they leave ``young``, and so do those that are gone."""
    for path, (size, changed, since) in list(young.items()):
        now = time.monotonic()
        if now - since < SETTLED_SECONDS:
            continue
        try:
            status = os.stat(path)
        except OSError:
            del young[path]
            continue
        if (status.st_size, status.st_mtime_ns) != (size, changed):
            young[path] = (status.st_size, status.st_mtime_ns, now)
        elif now - since >= needed(path, status):
            del young[path]
            yield path, status


class Later:
    """Which files to leave alone for a while: those that could not be read, ever longer.

    >>> later = Later()
    >>> later.put(7); later.is_due(7), later.is_due(8), later.tried(7)
    (False, True, True)
    >>> later.forget(7); later.is_due(7), later.tried(7)
    (True, False)
    """

    def __init__(self) -> None:
        self._pauses: dict[int, tuple[float, float]] = {}  # identity -> not before, the pause until then

    def __len__(self) -> int:
        return len(self._pauses)

    def put(self, identity: int) -> None:
        """It could not be read just now."""
        _, before = self._pauses.get(identity, (0.0, FIRST_PAUSE / 2))
        pause = min(2 * before, LONGEST_PAUSE)
        self._pauses[identity] = (time.monotonic() + pause, pause)

    def forget(self, identity: int) -> None:
        """It could be read."""
        self._pauses.pop(identity, None)

    def is_due(self, identity: int) -> bool:
        """Whether it may be tried now."""
        return self._pauses.get(identity, (0.0, 0.0))[0] <= time.monotonic()

    def tried(self, identity: int) -> bool:
        """Whether it has been tried before, in vain."""
        return identity in self._pauses
