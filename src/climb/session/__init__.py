"""Sessions: one loop trains runs and learners, from a configuration and a folder to a result.

A feed yields mini-batches, the engine learns them, observers react. `execute` runs an experiment on a dataset with
labels; `learn` learns from a live source. Both take observers of the caller (see `Observer`).
"""

from __future__ import annotations

from climb.session.configure import experiment
from climb.session.experiments import execute
from climb.session.feeds import Batch
from climb.session.journal_lines import MEASURES
from climb.session.learning import learn
from climb.session.observer import Observer
from climb.session.results import Learned
from climb.session.session import Session
from climb.session.signals import Finished, Interrupted

__all__ = [
    "MEASURES",
    "Batch",
    "Finished",
    "Interrupted",
    "Learned",
    "Observer",
    "Session",
    "execute",
    "experiment",
    "learn",
]
