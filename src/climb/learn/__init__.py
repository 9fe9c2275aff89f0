"""Learning from a stream of one's own, for as long as it lasts."""

from __future__ import annotations

from climb.learn.measures import MEASURES
from climb.learn.run import Learned, learn

__all__ = ["MEASURES", "Learned", "learn"]
