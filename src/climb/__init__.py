"""climb learns image representations from an endless, unlabeled stream with a bounded memory."""

from __future__ import annotations

import climb._renamed  # noqa: F401  # first: it serves the old names of the modules below
from climb._version import __version__
from climb.errors import ClimbError, InputError
from climb.learner import Climb

__all__ = ["Climb", "ClimbError", "InputError", "__version__"]
