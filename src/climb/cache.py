"""Where this machine keeps what can be made again: downloads, decoded images, compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """The cache folder: ``$CLIMB_CACHE``, or ``~/.cache/climb`` when that is not set.

    >>> from unittest.mock import patch
    >>> with patch.dict(os.environ, CLIMB_CACHE="/somewhere/else"):
    ...     cache_dir().as_posix()
    '/somewhere/else'
    """
    chosen = os.environ.get("CLIMB_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "climb"
