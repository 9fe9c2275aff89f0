"""How steps are executed: precision, memory layout, engine and threads. On a CPU, measured before the first step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from climb.engine.batch import IidChunks
from climb.engine.engine import Engine
from climb.engine.numerics import EngineKind, Precision, resolve_engine, resolve_precision
from climb.engine.parts import Layout
from climb.parallel import SINGLE, Group
from climb.precision import missing_for_kernels, threads, usable_cores

log = logging.getLogger(__name__)

FEWEST_STEPS = 1000
"""Steps of a run from which on measuring pays; it takes sixteen to eighty."""
COMPILING_PAYS = 300.0
"""Seconds of a run from which on compiling for a CPU pays; without cached kernels it takes half a minute to two."""
MARGIN = 0.95
"""A choice must take at most this share of the time of another to replace it, so that noise decides nothing."""
LONG_ENOUGH = 0.5
"""Seconds of mini-batches, at least four and at most twenty, from which on the fastest of them tells the speed."""
REFERENCE = {"precision": "float32", "layout": "contiguous", "engine": "eager"}
"""The choices on a CPU that all others agree with, up to rounding. Older files contain none and have these."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How steps are executed. On a CPU, equal choices give equal bits."""

    precision: Precision
    """Arithmetic of the networks."""
    layout: Layout
    """Memory layout of images and kernels in convolutions."""
    engine: EngineKind
    """How steps are carried out."""
    threads: int
    """CPU threads of torch."""


def choose(
    precision: str = "auto",
    engine: str = "auto",
    *,
    device: torch.device,
    group: Group = SINGLE,
    stored: Mapping[str, Any] | None = None,
    steps: int = 0,
    make: Callable[[Choices], Engine] | None = None,
) -> Choices:
    """The choices for a device; what is "auto" follows from its kind and, on a CPU, from short measurements.

    A CPU computes in bf16 where that is faster, with channels last, and eagerly. Before a run of a thousand steps or
    more, each of these is compared with its alternative on the network itself. Before a long run, the compiled step is
    compared, too. Without "auto", nothing is measured, and float32 has the contiguous layout, the reference.

    Args:
        precision: auto, float32, tf32 or bf16.
        engine: auto, eager, captured or compiled.
        device: where the network is trained.
        group: the processes that train it.
        stored: earlier choices on a CPU; what is "auto" stays as it was.
        steps: gradient steps to come; 0 if unknown.
        make: builds an engine for choices, at its first step. Engines are discarded after a few steps.
    """
    stored = stored if stored is not None and device.type == "cpu" else {}
    wanted = [stored.get("precision", "auto") if precision == "auto" else precision]
    wanted += [stored.get("engine", "auto") if engine == "auto" else engine]
    reference = device.type == "cpu" and wanted[0] == "float32"
    layout: Layout = "contiguous" if reference or device.type == "mps" else "channels-last"
    best = Choices(
        precision=resolve_precision(wanted[0], device),
        layout=stored.get("layout", layout),
        engine=resolve_engine(wanted[1], device, group),
        threads=min(stored.get("threads", torch.get_num_threads()), usable_cores()),
    )
    measurable = device.type == "cpu" and group.size == 1 and not stored and "auto" in wanted
    if not measurable or make is None or steps < FEWEST_STEPS:
        return best
    best, seconds = _fastest(best, make, precision)
    if engine == "auto" and steps * seconds > COMPILING_PAYS:
        best = _compiled_if_faster(best, seconds, make)
    log.info("steps take %.0f ms with %s", 1e3 * seconds, best)
    return best


def _fastest(best: Choices, make: Callable[[Choices], Engine], precision: str) -> tuple[Choices, float]:
    """The fastest of the choices and their alternatives without compiling, and its seconds per step."""
    alternatives: list[dict[str, Any]] = [
        {"layout": "contiguous" if best.layout == "channels-last" else "channels-last"}
    ]
    if precision == "auto" and best.precision == "bf16":
        alternatives.append({"precision": "float32"})
    if best.threads > 1:
        alternatives.append({"threads": 1})
    seconds = _seconds(best, make)
    for alternative in alternatives:
        other = replace(best, **alternative)
        its = _seconds(other, make)
        if its < MARGIN * seconds:
            best, seconds = other, its
    return best, seconds


def _compiled_if_faster(best: Choices, seconds: float, make: Callable[[Choices], Engine]) -> Choices:
    if missing := missing_for_kernels("cpu"):
        log.warning("%s. Steps stay eager; compiled ones are often faster.", missing)
        return best
    compiled = replace(best, engine="compiled")
    try:
        faster = _seconds(compiled, make) < MARGIN * seconds
    except Exception as error:  # of the compiler, or of a part that it cannot trace
        log.warning("the step cannot be compiled and stays eager: %s", str(error).splitlines()[0])
        return best
    return compiled if faster else best


def _seconds(choices: Choices, make: Callable[[Choices], Engine]) -> float:
    """Seconds per step of a new engine on random images, with a memory that holds enough to replay."""
    with threads(choices.threads), torch.random.fork_rng(devices=[]):
        engine = make(choices)
        engine.config = config = replace(engine.config, passes=1)
        rows = engine.parts.batch.rows(config) if isinstance(engine.parts.batch, IidChunks) else config.stream_batch
        shape = (rows, 3, config.image_size, config.image_size)
        _fill_memory(engine, shape)
        times: list[float] = []
        while len(times) < 4 or (sum(times[1:]) < LONG_ENOUGH and len(times) < 20):
            images = torch.randint(0, 256, shape, dtype=torch.uint8)
            steps, began = engine.budget.steps, time.perf_counter()
            engine.observe(images)
            times.append((time.perf_counter() - began) / max(1, engine.budget.steps - steps))
    return min(times[1:])  # the first call allocates, chooses kernels and may compile


def _fill_memory(engine: Engine, shape: tuple[int, ...]) -> None:
    """Insert random images until a replay batch can be drawn."""
    memory, network, config = engine.parts.memory, engine.parts.network, engine.config
    if memory is None:
        return
    width = network.embedding_dim if memory.space == "projector" else network.feature_dim

    def embed(images: torch.Tensor) -> torch.Tensor:
        return torch.randn(len(images), width)

    for _ in range(4 * config.replay_batch):
        if memory.sample(config.replay_batch) is not None:
            return
        images = torch.randint(0, 256, shape, dtype=torch.uint8)
        memory.insert(images, embed(images) if memory.space is not None else None, embed=embed)
