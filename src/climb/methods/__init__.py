"""Methods and objectives by name, and the factory that builds their parts."""

from __future__ import annotations

from climb.methods.catalog import METHODS, Method, choose_method, choose_objective, find_method, method
from climb.methods.factory import PartFactory
from climb.methods.named import climb, er_fifo, replay_method, with_replay
from climb.methods.objectives import OBJECTIVES, ObjectiveSpec, find_objective, objective
from climb.methods.validate import build_parts, check_config

__all__ = [
    "METHODS",
    "OBJECTIVES",
    "Method",
    "ObjectiveSpec",
    "PartFactory",
    "build_parts",
    "check_config",
    "choose_method",
    "choose_objective",
    "climb",
    "er_fifo",
    "find_method",
    "find_objective",
    "method",
    "objective",
    "replay_method",
    "with_replay",
]
