"""The memory of the released code with its faults, so that its numbers can be explained."""

from __future__ import annotations

from climb.contrib.released.memory import ReferenceMemory, SwappedRefreshMemory

__all__ = ["ReferenceMemory", "SwappedRefreshMemory"]
