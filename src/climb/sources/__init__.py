"""Live sources of images: folders, archives, videos, cameras, hub datasets, standard input, Python iterables.

`open_source` opens an address. Each file here registers the addresses that it takes, with the decorator `register`.
"""

from __future__ import annotations

from climb.sources.item import Item, PassedOver, Pending, Read, SeenFilter, digest, failed, loaded
from climb.sources.open import open_source
from climb.sources.source import Options, Source, register

__all__ = [
    "Item",
    "Options",
    "PassedOver",
    "Pending",
    "Read",
    "SeenFilter",
    "Source",
    "digest",
    "failed",
    "loaded",
    "open_source",
    "register",
]
