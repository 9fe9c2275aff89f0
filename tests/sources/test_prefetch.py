"""Loading ahead of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Event

import torch

from climb.images.decode import TRUNCATED, ImageError
from climb.sources.item import Item, PassedOver, Pending
from climb.sources.prefetch import Arrival, Prefetch, load

IMAGE = torch.zeros(3, 8, 8, dtype=torch.uint8)


def pending(number: int, image: Callable[[], torch.Tensor] = lambda: IMAGE) -> Callable[[], Arrival]:
    return partial(load, Pending(identity=number, where=str(number), load=image))


def test_images_arrive_in_order() -> None:
    def find(ending: Event) -> Iterator[Callable[[], Arrival]]:
        for number in range(20):
            yield pending(number, lambda number=number: (time.sleep(0.02 if number % 5 == 0 else 0), IMAGE)[1])

    prefetch = Prefetch(find, workers=4, depth=8, live=False)
    assert [arrival.where for arrival in prefetch.results(None) if arrival is not None] == [str(n) for n in range(20)]
    prefetch.close()


def test_a_live_source_drops_images_when_the_queue_is_full() -> None:
    found = Event()

    def find(ending: Event) -> Iterator[Callable[[], Arrival]]:
        yield from (pending(number) for number in range(100))
        found.set()

    prefetch = Prefetch(find, workers=1, depth=10, live=True)
    assert found.wait(60)
    kept = [arrival.where for arrival in prefetch.results(None) if arrival is not None]
    prefetch.close()
    assert kept == [str(number) for number in range(10)]
    assert prefetch.dropped == 90


def test_images_found_before_the_end_arrive() -> None:
    given = []

    def find(ending: Event) -> Iterator[Callable[[], Arrival]]:
        for number in range(1000):
            given.append(str(number))
            yield pending(number)
            if ending.is_set():
                return

    ending = Event()
    prefetch = Prefetch(find, workers=2, depth=5, live=False, ending=ending)
    arrivals = prefetch.results(None)
    taken = [next(arrivals)]
    ending.set()
    taken += arrivals
    prefetch.close()
    assert [arrival.where for arrival in taken if arrival is not None] == given
    assert len(given) < 20


def test_unusable_images_arrive_as_passed_over() -> None:
    def refuse() -> torch.Tensor:
        raise ImageError(TRUNCATED, "half of it")

    prefetch = Prefetch(lambda ending: iter([pending(0, refuse), pending(1)]), workers=1, depth=4, live=False)
    first, second = prefetch.results(None)
    prefetch.close()
    assert first == PassedOver(identity=0, where="0", reason=TRUNCATED, detail="half of it")
    assert isinstance(second, Item)


def test_a_slow_image_gives_none_until_it_is_loaded() -> None:
    begun, loaded = Event(), Event()

    def load_slowly() -> torch.Tensor:
        begun.set()
        loaded.wait(60)
        return IMAGE

    prefetch = Prefetch(lambda ending: iter([pending(0, load_slowly)]), workers=1, depth=4, live=False)
    assert begun.wait(60)
    arrivals = prefetch.results(0.01)
    assert [next(arrivals) for _ in range(3)] == [None, None, None]
    loaded.set()
    assert isinstance(next(arrival for arrival in arrivals if arrival is not None), Item)
    prefetch.close()
