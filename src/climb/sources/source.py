"""A source of images, and the registry in which each kind of source declares the addresses that it takes."""

from __future__ import annotations

import importlib
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from threading import Event
from typing import Any, TypeVar

from climb.errors import InputError
from climb.images.convert import PixelRange
from climb.images.tensors import Decoder
from climb.registry import Registry
from climb.sources.item import Item, PassedOver, Read, SeenFilter
from climb.sources.prefetch import Arrival, Prefetch, load

LOGGED = 20  # skipped images that are named in the log for each reason; all are counted
PREFETCHED = 32  # about two mini-batches: a crash would lose more
log = logging.getLogger("climb.sources")


@dataclass(eq=False)
class Source:
    """Images of one size. Iterating gives `Item`s; each iteration starts over."""

    read: Read
    """Finds the images."""
    _: KW_ONLY
    name: str
    """The source in messages."""
    rereadable: bool
    """Whether the same images can be found again after a crash."""
    endless: bool = False
    """Whether it waits for more images."""
    live: bool = False
    """Whether it continues without a reader, so that images must be dropped."""
    workers: int = 2
    """Threads that load images."""
    passed_over: Counter[str] = field(default_factory=Counter, init=False)
    """Number of skipped images by reason."""
    dropped: int = field(default=0, init=False)
    """Number of images for which a live source had no reader."""

    def __iter__(self) -> Iterator[Item]:
        return (arrival for arrival in self.arrivals() if isinstance(arrival, Item))

    def arrivals(
        self, *, patience: float | None = None, seen: SeenFilter | None = None, ending: Event | None = None
    ) -> Generator[Arrival]:
        """Images, and notices of skipped images, which are counted and logged.

        Args:
            patience: seconds without an arrival after which None is yielded; None waits without limit.
            seen: tells which images are new. By default all are; an endless source yields each image once.
            ending: stops the search for images when it is set. Images that were found still arrive.
        """
        if seen is None:  # an empty filter may be falsy
            seen = Once() if self.endless else Everything()

        def find(stop: Event) -> Iterator[Callable[[], Arrival]]:
            return (partial(load, pending) for pending in self.read(seen, stop))

        prefetch = Prefetch(find, workers=self.workers, depth=PREFETCHED, live=self.live, ending=ending)
        try:
            for arrival in prefetch.results(patience):
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


class Everything(SeenFilter):
    """A `SeenFilter` that takes every image for new."""


class Once(SeenFilter):
    """A `SeenFilter` that takes every image for new once.

    >>> seen = Once()
    >>> seen(7), seen(7), seen.is_new(7)
    (True, False, False)
    >>> seen.release(7); seen.is_new(7), seen(7)
    (True, True)
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def __call__(self, identity: int, /) -> bool:
        """Mark an image as seen. True if it was new."""
        new = self.is_new(identity)
        self._seen.add(identity)
        return new

    def is_new(self, identity: int, /) -> bool:
        """Whether an image is new; does not mark it."""
        return identity not in self._seen

    def release(self, identity: int, /) -> None:
        """Mark an image as new again."""
        self._seen.discard(identity)


# -- kinds of sources --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to open a source."""

    image_size: int
    """Side of the images."""
    watch: bool = False
    """Whether to follow the source: do not end, yield new files as they appear."""
    every: int = 1
    """Yield every n-th frame of a video or camera."""
    pixel_range: PixelRange | None = None
    """Values that become black and white in images of more than 8 bits; None for the range of each image."""

    @cached_property
    def decoder(self) -> Decoder:
        """Decodes the images of the source."""
        return Decoder(image_size=self.image_size, pixel_range=self.pixel_range)


@dataclass(frozen=True, kw_only=True)
class SourceKind:
    """A kind of source: which addresses it takes, and the attributes of the `Source` at such an address."""

    help: str
    """Its addresses, for the list in messages."""
    takes: Callable[[str], bool]
    """Whether an address belongs to this kind. The first kind that takes an address opens it."""
    open: Callable[[Any, Options], Read]
    rereadable: bool = True
    endless: bool = False
    live: bool = False
    watchable: bool = False
    """Whether the source can be watched, and is endless then."""


SOURCES = Registry[SourceKind]("source", builtin=["climb.sources.*"])

Opener = TypeVar("Opener", bound=Callable[[Any, Options], Read])


def register(name: str, **attributes: Any) -> Callable[[Opener], Opener]:
    """Register a function that opens one kind of source. ``attributes`` are the other fields of `SourceKind`.

    >>> import torch
    >>> from climb.sources import open_source
    >>> from climb.sources.item import loaded
    >>> with SOURCES.scoped():
    ...     @register("grey", help="grey:COUNT", takes=lambda address: address.startswith("grey:"))
    ...     def read_grey(address: str, options: Options) -> Read:
    ...         image = torch.full((3, options.image_size, options.image_size), 127, dtype=torch.uint8)
    ...         return lambda seen, stop: (loaded(f"grey {i}", None, image) for i in range(int(address[5:])))
    ...     len(list(open_source("grey:3", image_size=32)))
    3
    """
    return SOURCES.register(name, lambda opener: SourceKind(open=opener, **attributes))


def find_kind(address: str) -> SourceKind | None:
    """The kind of source that takes an address; None if no registered kind does."""
    return next((kind for kind in SOURCES.values() if kind.takes(address)), None)


def allowed_addresses() -> str:
    """The addresses of all kinds of sources, for messages."""
    return f"Allowed: {', '.join(kind.help for kind in SOURCES.values())}"


def import_extra(module: str, what: str, extra: str) -> Any:
    """Import a library of an extra; an `InputError` that names the extra if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f'{what} need the extra: pip install "climb-ssl[{extra}]"') from None
