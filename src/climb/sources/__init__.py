"""Where images come from when they are nobody's benchmark: folders, archives, videos, cameras, queues."""

from __future__ import annotations

from climb.sources.item import Item, PassedOver
from climb.sources.open import open_source
from climb.sources.source import Source

__all__ = ["Item", "PassedOver", "Source", "open_source"]
