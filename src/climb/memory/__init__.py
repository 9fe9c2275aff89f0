"""Memories: which images of the stream to keep. `climb.testing.check_memory` checks the contract of each."""

from __future__ import annotations

from climb.memory.centroid import CentroidMemory
from climb.memory.contract import MEMORIES, InsertReport, Memory, ReplayBatch, memory
from climb.memory.flat import FifoMemory, ReservoirMemory
from climb.memory.minred import MinRedMemory
from climb.memory.part_and_select import PartAndSelectMemory
from climb.memory.snapshot import Group, MemorySnapshot, ShowsGroups, Tier

__all__ = [
    "MEMORIES",
    "CentroidMemory",
    "FifoMemory",
    "Group",
    "InsertReport",
    "Memory",
    "MemorySnapshot",
    "MinRedMemory",
    "PartAndSelectMemory",
    "ReplayBatch",
    "ReservoirMemory",
    "ShowsGroups",
    "Tier",
    "memory",
]
