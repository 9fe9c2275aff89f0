"""climb learns image representations from an endless, unlabeled stream, with a memory that never exceeds its bound."""

from __future__ import annotations

from climb._version import __version__
from climb.errors import ClimbError, InputError
from climb.learner import Climb

__all__ = ["Climb", "ClimbError", "InputError", "__version__"]
