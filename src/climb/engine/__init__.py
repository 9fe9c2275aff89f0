"""The engine: passes over a stream mini-batch, gradient steps, budget counters."""

from __future__ import annotations

from climb.engine.batch import BatchRule, TrainingBatch, stream_and_replay
from climb.engine.budget import Budget
from climb.engine.engine import Engine, Observation
from climb.engine.numerics import EngineKind, Precision, resolve_device, resolve_engine, resolve_precision
from climb.engine.parts import Parts

__all__ = [
    "BatchRule",
    "Budget",
    "Engine",
    "EngineKind",
    "Observation",
    "Parts",
    "Precision",
    "TrainingBatch",
    "resolve_device",
    "resolve_engine",
    "resolve_precision",
    "stream_and_replay",
]
