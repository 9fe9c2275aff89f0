"""The engine: passes over a stream mini-batch, gradient steps, budget counters."""

from __future__ import annotations

from climb.engine.batch import BatchRule, Mixed, StreamAndReplay, TrainingBatch, stream_alone
from climb.engine.budget import Budget
from climb.engine.engine import Engine, Observation
from climb.engine.numerics import EngineKind, Precision, resolve_device, resolve_engine, resolve_precision
from climb.engine.parts import Parts
from climb.engine.rules import IidChunks, MemoryOnly, MixUp

__all__ = [
    "BatchRule",
    "Budget",
    "Engine",
    "EngineKind",
    "IidChunks",
    "MemoryOnly",
    "MixUp",
    "Mixed",
    "Observation",
    "Parts",
    "Precision",
    "StreamAndReplay",
    "TrainingBatch",
    "resolve_device",
    "resolve_engine",
    "resolve_precision",
    "stream_alone",
]
