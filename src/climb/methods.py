"""Named methods: each is a choice of four parts (memory, batch, objective, alignment) and nothing else."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, replace

from climb.config import LearnerConfig
from climb.engine import Parts, StreamAndReplay
from climb.errors import unknown
from climb.workshop import Workshop

Build = Callable[[Workshop], Parts]


@dataclass(frozen=True, kw_only=True)
class Method:
    """A row of a table."""

    name: str
    build: Build
    summary: str
    """What it is, in one line."""
    paper: str
    """Who proposed it."""
    lr: float | None
    """Learning rate it starts from; None takes the preset's, which is CLIMB's."""
    alignment_weight: float | None
    """Weight of its alignment loss; None takes the preset's."""


METHODS: dict[str, Method] = {}


def method(
    name: str, *, paper: str, lr: float | None = None, alignment_weight: float | None = None
) -> Callable[[Build], Build]:
    """Register a method under a name; the first line of the function's docstring says what it is."""

    def register(build: Build) -> Build:
        summary = (build.__doc__ or name).strip().splitlines()[0]
        METHODS[name] = Method(
            name=name, build=build, summary=summary, paper=paper, lr=lr, alignment_weight=alignment_weight
        )
        return build

    return register


def find_method(name: str) -> Method:
    """The method called ``name``: one of ours, or one that an installed package registers.

    A package registers by the entry point group ``climb.methods``, whose modules use the `method` decorator.
    """
    if name not in METHODS:
        load_plugins()
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def load_plugins() -> None:
    """Import what installed packages registered under ``climb.methods``."""
    for entry in importlib.metadata.entry_points(group="climb.methods"):
        entry.load()


def choose_method(config: LearnerConfig, name: str) -> LearnerConfig:
    """The configuration with another method and the rates it starts from.

    >>> choose_method(LearnerConfig(), "cla-e").lr
    0.1
    """
    found = find_method(name)
    config = replace(config, method=name)
    if found.lr is not None:
        config = replace(config, lr=found.lr)
    if found.alignment_weight is not None:
        config = replace(config, alignment_weight=found.alignment_weight)
    return config


def build_parts(workshop: Workshop) -> Parts:
    """The parts of the method that the configuration names."""
    return find_method(workshop.config.method).build(workshop)


@method("climb", paper="Lefebvre et al., 2026")
def climb(w: Workshop) -> Parts:
    """Centroid memory, replay, distillation from an EMA teacher."""
    return Parts(
        network=w.network,
        memory=w.centroid(),
        batch=StreamAndReplay(),
        objective=w.objective(),
        alignment=w.ema_teacher(),
    )


@method("cla-e", paper="Cignoni et al., 2025", lr=0.1, alignment_weight=1.0)
def cla_e(w: Workshop) -> Parts:
    """The last N images, replay, distillation from an EMA teacher."""
    return Parts(
        network=w.network,
        memory=w.fifo(),
        batch=StreamAndReplay(),
        objective=w.objective(),
        alignment=w.ema_teacher(),
    )


@method("er-fifo", paper="experience replay", lr=0.1)
def er_fifo(w: Workshop) -> Parts:
    """The last N images, replay, no alignment."""
    return Parts(network=w.network, memory=w.fifo(), batch=StreamAndReplay(), objective=w.objective(), alignment=None)


@method("er-reservoir", paper="experience replay; Vitter, 1985", lr=0.1)
def er_reservoir(w: Workshop) -> Parts:
    """A uniform sample of the stream, replay, no alignment."""
    return Parts(
        network=w.network, memory=w.reservoir(), batch=StreamAndReplay(), objective=w.objective(), alignment=None
    )
