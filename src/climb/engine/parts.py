"""The four sockets of a method, filled."""

from __future__ import annotations

from dataclasses import dataclass

from climb.alignment import Alignment
from climb.engine.batch import BatchRule
from climb.memory import Memory
from climb.nets import Network
from climb.objectives import Objective


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A method is a choice of these and nothing else."""

    network: Network
    """The encoder and projector that are trained."""
    memory: Memory | None
    """What do we keep?"""
    batch: BatchRule
    """What do we train on?"""
    objective: Objective
    """What do we learn?"""
    alignment: Alignment | None
    """What must not drift?"""
