"""What a source gives: images, or word of what it passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Protocol

import torch


@dataclass(frozen=True, kw_only=True, eq=False)
class Item:
    """One image."""

    identity: int | None
    """64 bits that name it for good; None where the source cannot give it a second time."""
    image: torch.Tensor
    """uint8 (3, S, S)."""
    where: str
    """Where it came from, for people: a path, a shard and its member, a video and its frame."""


@dataclass(frozen=True, kw_only=True)
class PassedOver:
    """Something that should have been an image and is not used."""

    identity: int | None
    where: str
    reason: str
    """One of `REASONS`."""
    detail: str
    """What the decoder said."""

    @property
    def for_good(self) -> bool:
        """Whether trying again is pointless: a file that cannot be read now may be readable tomorrow."""
        return self.reason != UNREADABLE


NOT_AN_IMAGE, TRUNCATED, CORRUPT, TOO_LARGE, UNREADABLE = (
    "not an image",
    "truncated",
    "corrupt",
    "too large",
    "unreadable",
)
REASONS = (NOT_AN_IMAGE, TRUNCATED, CORRUPT, TOO_LARGE, UNREADABLE)


class Unusable(Exception):
    """Raised while an image is loaded; the reader of the source sees a `PassedOver`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, kw_only=True)
class Pending:
    """An image that has been found and not been loaded: loading happens in a thread of its own."""

    identity: int | None
    where: str
    load: Callable[[], torch.Tensor]
    """uint8 (3, S, S), or `Unusable`."""
    again: bool = False
    """Whether it could not be read before, so that word of it has been given if it still cannot be."""


class Claim(Protocol):
    """Which images are new, by their identities."""

    def __call__(self, identity: int, /) -> bool:
        """Whether an image is new. Asking makes it known, so that nothing is handed out twice."""

    def is_new(self, identity: int, /) -> bool:
        """Whether an image is new, without making it known."""

    def release(self, identity: int, /) -> None:
        """Make an image that could not be read new again."""


Read = Callable[[Claim, Event], Iterator[Pending]]
"""What makes a source: images as they are found, until there are no more or the event is set."""


def refuse(pending_where: str, identity: int | None, error: Unusable) -> Pending:
    """A pending image of which it is already known that it cannot be loaded."""

    def load() -> torch.Tensor:
        raise error

    return Pending(identity=identity, where=pending_where, load=load)
