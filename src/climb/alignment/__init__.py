"""Alignments: losses that keep the network close to a reference."""

from __future__ import annotations

from climb.alignment.contract import ALIGNMENTS, Alignment, alignment
from climb.alignment.ema_teacher import EmaTeacher
from climb.alignment.relation import Relation
from climb.alignment.snapshot import Snapshot
from climb.alignment.start import StartTeacher
from climb.alignment.stored_targets import StoredTargets

__all__ = [
    "ALIGNMENTS",
    "Alignment",
    "EmaTeacher",
    "Relation",
    "Snapshot",
    "StartTeacher",
    "StoredTargets",
    "alignment",
]
