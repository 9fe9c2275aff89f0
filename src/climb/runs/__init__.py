"""The run folder on disk: configuration, journal, checkpoint, result, memory snapshot."""

from __future__ import annotations

from climb.runs.folder import Result, RunFolder
from climb.runs.journal import Journal

__all__ = ["Journal", "Result", "RunFolder"]
