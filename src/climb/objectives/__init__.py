"""The objective socket: what do we learn?"""

from __future__ import annotations

from climb.objectives.contract import Objective
from climb.objectives.simclr import SimCLR

__all__ = ["Objective", "SimCLR"]
