"""The memory socket: what do we keep? Every memory follows one contract, which `check_memory` enforces."""

from __future__ import annotations

from climb.memory.centroid import CentroidMemory
from climb.memory.check import check_memory
from climb.memory.contract import InsertReport, Memory, ReplayBatch
from climb.memory.fifo import FifoMemory
from climb.memory.minred import MinRedMemory
from climb.memory.part_and_select import PartAndSelectMemory
from climb.memory.reference import ReferenceMemory
from climb.memory.reservoir import ReservoirMemory
from climb.memory.swapped import SwappedRefreshMemory
from climb.memory.tier import Tier

__all__ = [
    "CentroidMemory",
    "FifoMemory",
    "InsertReport",
    "Memory",
    "MinRedMemory",
    "PartAndSelectMemory",
    "ReferenceMemory",
    "ReplayBatch",
    "ReservoirMemory",
    "SwappedRefreshMemory",
    "Tier",
    "check_memory",
]
