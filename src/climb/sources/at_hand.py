"""Images whose bytes are there already: of an archive or a dataset, read from front to back, or of an iterable."""

from __future__ import annotations

from functools import partial

from climb.sources.decode import decode
from climb.sources.item import Pending, Unusable, refuse

LARGE = 2**22
"""Bytes beyond which an image is decoded where it is found: dozens of such files in a queue would fill the memory."""


def pending_bytes(data: bytes, image_size: int, *, where: str, identity: int | None) -> Pending:
    """The image in ``data``, to be loaded in a thread of its own; a large one has been by then."""
    if len(data) <= LARGE:
        return Pending(identity=identity, where=where, load=partial(decode, data, image_size))
    try:
        image = decode(data, image_size)
    except Unusable as error:
        return refuse(where, identity, error)
    return Pending(identity=identity, where=where, load=lambda: image)
