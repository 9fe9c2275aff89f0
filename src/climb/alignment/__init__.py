"""The alignment socket: what must not drift?"""

from __future__ import annotations

from climb.alignment.contract import Alignment
from climb.alignment.ema_teacher import EmaTeacher
from climb.alignment.relation import Relation
from climb.alignment.snapshot import Snapshot
from climb.alignment.stored_targets import StoredTargets

__all__ = ["Alignment", "EmaTeacher", "Relation", "Snapshot", "StoredTargets"]
