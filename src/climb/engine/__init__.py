"""The engine: passes over a stream mini-batch, gradient steps, budget counters."""

from __future__ import annotations

from climb.engine.batch import (
    BATCH_RULES,
    BatchRule,
    IidChunks,
    MemoryOnly,
    Mixed,
    MixUp,
    StreamAndReplay,
    TrainingBatch,
    batch_rule,
    stream_alone,
)
from climb.engine.choices import Choices, choose
from climb.engine.engine import Budget, Engine, Observation
from climb.engine.numerics import EngineKind, Precision, resolve_device, resolve_engine, resolve_precision
from climb.engine.parts import Layout, Parts

__all__ = [
    "BATCH_RULES",
    "BatchRule",
    "Budget",
    "Choices",
    "Engine",
    "EngineKind",
    "IidChunks",
    "Layout",
    "MemoryOnly",
    "MixUp",
    "Mixed",
    "Observation",
    "Parts",
    "Precision",
    "StreamAndReplay",
    "TrainingBatch",
    "batch_rule",
    "choose",
    "resolve_device",
    "resolve_engine",
    "resolve_precision",
    "stream_alone",
]
