"""Runs: a folder, a journal, a checkpoint, a result."""

from __future__ import annotations

from climb.runs.experiment import experiment
from climb.runs.folder import RunFolder
from climb.runs.interrupt import Finished, Interrupted
from climb.runs.journal import Journal
from climb.runs.result import Result
from climb.runs.start import execute

__all__ = ["Finished", "Interrupted", "Journal", "Result", "RunFolder", "execute", "experiment"]
