"""Files as they appear: complete ones only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from threading import Event

POLL_SECONDS = 0.5
"""Least time between two looks."""
SETTLED_SECONDS = 2.0
"""A file that nobody has written to for so long is complete."""

Found = tuple[str, os.stat_result]


def watched(look: Callable[[], Iterator[Found]], stop: Event) -> Iterator[Found]:
    """What ``look`` finds, again and again, less the files that may still be written to.

    Polling, and not the kernel's notifications: these do not exist on network file systems, where folders that other
    machines fill usually are. Every complete file is given at every look; the caller knows which ones are new.
    """
    young: dict[str, tuple[int, int, float]] = {}  # path -> size, time, since when they are so
    while not stop.is_set():
        began = time.monotonic()
        still_young: dict[str, tuple[int, int, float]] = {}
        for path, status in look():
            # By its own time where the clocks agree; by watching it stay as it is where they do not.
            if time.time() - status.st_mtime < SETTLED_SECONDS:
                size, changed, since = young.get(path, (-1, -1, began))
                if (size, changed) != (status.st_size, status.st_mtime_ns):
                    since = began
                if began - since < SETTLED_SECONDS:
                    still_young[path] = (status.st_size, status.st_mtime_ns, since)
                    continue
            yield path, status
            if stop.is_set():
                return
        young = still_young
        stop.wait(max(POLL_SECONDS, time.monotonic() - began))  # a large folder is looked at less often
