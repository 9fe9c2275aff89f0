"""The alignment socket: what must not drift?"""

from __future__ import annotations

from climb.alignment.contract import Alignment
from climb.alignment.ema_teacher import EmaTeacher

__all__ = ["Alignment", "EmaTeacher"]
