"""Prefetch: one thread finds what to load, a few threads load it, and a bounded queue holds the results."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event, Thread
from typing import Generic, TypeVar

from climb.images.decode import UNREADABLE, ImageError
from climb.sources.item import Item, PassedOver, Pending

Arrival = Item | PassedOver | None
"""An image, a file that is not used, or None: nothing arrived for a while."""
Loaded = TypeVar("Loaded")


class Prefetch(Generic[Loaded]):
    """Results in the order in which they were found, loaded ahead of time.

    Args:
        find: yields functions that load one result each; its argument is ``ending``.
        workers: threads that load.
        depth: maximum number of results loaded ahead.
        live: drop what is found while the queue is full, as a camera must; otherwise finding waits.
        ending: asks ``find`` to end; what it found before still arrives.

    >>> prefetch = Prefetch(lambda ending: iter([lambda: "a", lambda: "b"]), workers=1, depth=2)
    >>> list(prefetch.results())
    ['a', 'b']
    >>> prefetch.close()
    """

    def __init__(
        self,
        find: Callable[[Event], Iterator[Callable[[], Loaded]]],
        *,
        workers: int,
        depth: int,
        live: bool = False,
        ending: Event | None = None,
    ) -> None:
        self.dropped = 0
        self._ending = ending or Event()
        self._closed = Event()
        self._live = live
        self._queue: queue.Queue[Future[Loaded] | None] = queue.Queue(maxsize=depth)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="climb-load")
        # A daemon: a thread that waits for a camera must not keep the process alive.
        self._thread = Thread(target=self._produce, args=(find,), name="climb-find", daemon=True)
        self._thread.start()

    def results(self, patience: float | None = None) -> Iterator[Loaded | None]:
        """Results until there are no more; None after each ``patience`` seconds without one."""
        while True:
            try:
                item = self._queue.get(timeout=patience)
            except queue.Empty:
                yield None
                continue
            if item is None:
                return
            # The drive may be slow, or hang. Asking first spares most results the cost of waiting.
            while not item.done() and not wait([item], timeout=patience).done:
                yield None
            yield item.result()

    def close(self) -> None:
        """Stop finding and loading, and drop the results loaded ahead."""
        self._ending.set()
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._thread.join(timeout=1.0)

    def _produce(self, find: Callable[[Event], Iterator[Callable[[], Loaded]]]) -> None:
        end: Future[Loaded] | None = None
        try:
            for task in find(self._ending):
                if self._live and self._queue.full():
                    self.dropped += 1
                elif not self._put(self._pool.submit(task)):
                    return
        except BaseException as error:  # raised again by `results`
            end = Future()
            end.set_exception(error)
        self._put(end)

    def _put(self, item: Future[Loaded] | None) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False


def load(pending: Pending) -> Arrival:
    """The image, or why it is passed over; None if that is known already."""
    try:
        return Item(identity=pending.identity, image=pending.load(), where=pending.where)
    except ImageError as error:
        if pending.again and error.reason == UNREADABLE:
            return None
        return PassedOver(identity=pending.identity, where=pending.where, reason=error.reason, detail=error.detail)
