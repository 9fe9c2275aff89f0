"""What a source yields: images, and notices of images that were skipped. And how an image is identified."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Protocol

import torch

from climb.images.decode import UNREADABLE, ImageError


@dataclass(frozen=True, kw_only=True, eq=False)
class Item:
    """One image."""

    identity: int | None
    """64 bits that identify the image for good; None if the source cannot yield it again."""
    image: torch.Tensor
    """uint8 (3, S, S)."""
    where: str
    """Its origin, for messages: a path, a shard and its member, a video and its frame."""


@dataclass(frozen=True, kw_only=True)
class PassedOver:
    """An image that cannot be used."""

    identity: int | None
    where: str
    reason: str
    """One of `climb.images.decode.REASONS`."""
    detail: str
    """The decoder's message."""

    @property
    def for_good(self) -> bool:
        """Whether another attempt is pointless. An unreadable file may become readable."""
        return self.reason != UNREADABLE


@dataclass(frozen=True, kw_only=True)
class Pending:
    """An image that was found. A worker thread loads it."""

    identity: int | None
    where: str
    load: Callable[[], torch.Tensor]
    """Returns uint8 (3, S, S), or raises `ImageError`."""
    again: bool = False
    """Whether an earlier attempt failed. If this one fails, too, no second notice is given."""


class SeenFilter(Protocol):
    """Tells new images from those seen before, by their identities. The methods here take every image for new."""

    def __call__(self, identity: int, /) -> bool:
        """Mark an image as seen. True if it was new."""
        return True

    def is_new(self, identity: int, /) -> bool:
        """Whether an image is new; does not mark it."""
        return True

    def release(self, identity: int, /) -> None:
        """Mark an image as new again, because it could not be read."""
        return


Read = Callable[[SeenFilter, Event], Iterator[Pending]]
"""Finds the images of a source. It ends when there are no more, or when the event is set."""


def failed(where: str, identity: int | None, error: ImageError, *, again: bool = False) -> Pending:
    """A pending image whose loading is known to fail."""

    def load() -> torch.Tensor:
        raise error

    return Pending(identity=identity, where=where, load=load, again=again)


def loaded(where: str, identity: int | None, image: torch.Tensor) -> Pending:
    """A pending image that is loaded already."""
    return Pending(identity=identity, where=where, load=lambda: image)


def digest(*parts: str | int) -> int:
    """A 64-bit hash of the parts, the same on every machine and in every version.

    >>> digest("a", 1) == digest("a", 1), digest("a", 1) == digest("a1")
    (True, False)
    """
    text = "\0".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest(), "little")


def file_identity(path: str, status: os.stat_result, *inside: str | int) -> int:
    """Identity of a file by path, size and modification time, or of something ``inside`` it."""
    return digest(os.path.abspath(path), status.st_size, status.st_mtime_ns, *inside)
