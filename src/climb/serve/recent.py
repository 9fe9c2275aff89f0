"""What was used last, so that a server that has seen much does not keep it all."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Recent(Generic[T]):
    """At most ``most`` things by key; the one that was not asked for longest makes room.

    >>> recent = Recent[str](2)
    >>> recent.put("a", "A"), recent.put("b", "B"), recent.get("a"), recent.put("c", "C")
    (None, None, 'A', None)
    >>> recent.get("a"), recent.get("b"), recent.get("c")
    ('A', None, 'C')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._things: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        """What was put there, if it is still kept."""
        with self._lock:
            if key not in self._things:
                return None
            self._things.move_to_end(key)
            return self._things[key]

    def put(self, key: Hashable, thing: T) -> None:
        """Keep it."""
        with self._lock:
            self._things[key] = thing
            self._things.move_to_end(key)
            while len(self._things) > self._most:
                self._things.popitem(last=False)
