"""Watch for new files: yield them when they are complete, and retry those that could not be read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from threading import Event

from climb.images.find import FoundFile, version

POLL_SECONDS = 0.5
"""Least time between two scans."""
COST = 20.0
"""Least time between two scans of one kind, in durations of a scan: each kind takes at most a twentieth of a core."""
SETTLED_SECONDS = 2.0
"""A file is complete after this time without a write."""
MAX_YOUNG = 100_000
"""Files that may still be written to and are remembered. Later scans find the others again."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 600.0
"""Seconds before an unreadable file is tried again; doubled with each failure."""

Young = dict[str, tuple[tuple[int, int], float]]
"""Files that may be incomplete: the `version` of each and when it was first seen, by path."""
Scan = Callable[[bool], Iterator[FoundFile]]
"""Finds the files. Takes whether the scan must be full; otherwise it may be quick."""


def settled_seconds(path: str, status: os.stat_result) -> float:
    """How long a file must be unchanged to be complete."""
    return SETTLED_SECONDS


def watched(
    scan: Scan,
    is_new: Callable[[str, os.stat_result], bool],
    stop: Event,
    needed: Callable[[str, os.stat_result], float] = settled_seconds,
) -> Iterator[FoundFile]:
    """Scan again and again; yield each new file as soon as it is complete.

    Args:
        scan: finds the files.
        is_new: whether a file is new.
        stop: ends the watching when it is set.
        needed: how many seconds a file must be unchanged to be complete.
    """
    # Polling, because network file systems have no notifications. The clocks of the machines that write there may be
    # wrong, so a file must be seen twice without a change. Only the first scan trusts the times of files: otherwise a
    # start with a million files would need a second look at each.
    young: Young = {}
    first, next_scan, next_full = True, 0.0, 0.0
    while not stop.is_set():
        began = mark = time.monotonic()
        if began >= next_scan:
            cost, full = 0.0, began >= next_full
            for path, status in scan(full):
                if stop.is_set():
                    return
                if path in young or not is_new(path, status):
                    continue
                if first and time.time() - max(status.st_mtime, status.st_ctime) >= needed(path, status):
                    cost += time.monotonic() - mark
                    yield path, status
                    mark = time.monotonic()  # the caller's time is not part of the scan
                elif len(young) < MAX_YOUNG:
                    young[path] = (version(status), time.monotonic())
            first, now = False, time.monotonic()
            pause = COST * (cost + now - mark)
            next_scan = now + (POLL_SECONDS if full else max(POLL_SECONDS, pause))
            if full:
                next_full = now + max(POLL_SECONDS, pause)
            if len(young) >= MAX_YOUNG:
                next_full = now
        for path, status in _pop_complete(young, needed):
            if stop.is_set():
                return
            yield path, status
        stop.wait(POLL_SECONDS)


def _pop_complete(young: Young, needed: Callable[[str, os.stat_result], float]) -> Iterator[FoundFile]:
    """Remove the complete files from ``young`` and yield them. Also removes the files that are gone."""
    for path, (before, since) in list(young.items()):
        now = time.monotonic()
        if now - since < SETTLED_SECONDS:
            continue
        try:
            status = os.stat(path)
        except OSError:
            del young[path]
            continue
        if version(status) != before:
            young[path] = (version(status), now)
        elif now - since >= needed(path, status):
            del young[path]
            yield path, status


class RetrySchedule(dict[int, tuple[float, float]]):
    """When to retry the files that could not be read: by identity, the time and the pause before it, which grows.

    >>> retries = RetrySchedule()
    >>> retries.put(7); retries.is_due(7), retries.is_due(8), 7 in retries
    (False, True, True)
    """

    def put(self, identity: int) -> None:
        """The file could not be read just now."""
        _, previous = self.get(identity, (0.0, FIRST_PAUSE / 2))
        pause = min(2 * previous, LONGEST_PAUSE)
        self[identity] = (time.monotonic() + pause, pause)

    def is_due(self, identity: int) -> bool:
        """Whether the file may be tried now."""
        return identity not in self or self[identity][0] <= time.monotonic()
