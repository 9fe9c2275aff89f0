"""Loading off the critical path: one thread finds images, a few load them, a bounded queue holds the result."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event, Thread

from climb.sources.item import UNREADABLE, Item, PassedOver, Pending, Unusable

Arrival = Item | PassedOver | None
"""An image, word of one that is not used, or None: nothing came for a while."""


class Prefetch:
    """Arrivals in the order in which they were found, loaded ahead of time.

    Args:
        find: given an event that asks it to end, finds images.
        ending: that event; what was found before it is set still arrives.
        workers: threads that load.
        depth: most images loaded ahead.
        live: drop what is found while the queue is full, as a camera must; otherwise finding waits.
    """

    def __init__(
        self,
        find: Callable[[Event], Iterator[Pending]],
        *,
        workers: int,
        depth: int,
        live: bool,
        ending: Event | None = None,
    ) -> None:
        self.dropped = 0
        self._ending = ending or Event()
        self._closed = Event()
        self._live = live
        self._queue: queue.Queue[Future[Arrival] | BaseException | None] = queue.Queue(maxsize=depth)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="climb-load")
        # A daemon: one that waits for a camera must not keep the process alive.
        self._thread = Thread(target=self._produce, args=(find,), name="climb-find", daemon=True)
        self._thread.start()

    def arrivals(self, patience: float | None) -> Iterator[Arrival]:
        """What arrives, until the source ends; None after each ``patience`` seconds without anything."""
        while True:
            try:
                arrived = self._queue.get(timeout=patience)
            except queue.Empty:
                yield None
                continue
            if arrived is None:
                return
            if isinstance(arrived, BaseException):
                raise arrived
            while not wait([arrived], timeout=patience).done:  # a drive may take its time, or hang
                yield None
            yield arrived.result()

    def close(self) -> None:
        """Stop finding and loading; what was loaded ahead is forgotten."""
        self._ending.set()
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._thread.join(timeout=1.0)

    def _produce(self, find: Callable[[Event], Iterator[Pending]]) -> None:
        end: BaseException | None = None
        try:
            for pending in find(self._ending):
                if self._live and self._queue.full():
                    self.dropped += 1
                elif not self._put(self._pool.submit(load, pending)):
                    return
        except BaseException as error:  # raised again where the arrivals are read
            end = error
        self._put(end)

    def _put(self, arrived: Future[Arrival] | BaseException | None) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(arrived, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False


def load(pending: Pending) -> Arrival:
    """The image, or why it is passed over; None if that has been said before."""
    try:
        return Item(identity=pending.identity, image=pending.load(), where=pending.where)
    except Unusable as error:
        if pending.again and error.reason == UNREADABLE:
            return None
        return PassedOver(identity=pending.identity, where=pending.where, reason=error.reason, detail=error.detail)
