"""Time of a gradient step, of its parts, and the overhead of the memory.

    python benchmarks/step.py --device cuda --presets default paper --engines eager captured compiled
    python benchmarks/step.py --device cuda --image-size 224
    python benchmarks/step.py --device cpu --backbone micro --batches 10 --warm-up 5 --parts

Times whole stream mini-batches (all passes, replay, refresh, insertion) on random images, in groups without a pause,
and divides by the number of gradient steps. "overhead" is the ratio to the same engine with a fixed tensor of images
in place of the memory. The two alternate in one process. Medians after a warm-up, with the device synchronised around
each group.

--parts also times each part of the step alone, in the way the engine runs it; "rest" is the remainder of the step.
"share_of_peak" is the arithmetic of the step, as counted by torch, relative to one large matrix product on this device
in the same precision.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from climb.engine import Choices, Engine, choose, resolve_device
from climb.engine.captured import EAGER_CALLS, WARM_UPS, Captured
from climb.engine.compiled import compiled
from climb.engine.numerics import autocast, numerics
from climb.memory import InsertReport, ReplayBatch
from climb.methods.build import build_engine
from climb.settings.config import LearnerConfig
from climb.settings.presets import apply_preset

GROUP = 10  # mini-batches timed together


class FixedReplay:
    """A memory that costs nothing: every draw gives the same images."""

    space = None
    inserts = "after"
    bounded = False
    nbytes = 0

    def __init__(self, images: torch.Tensor) -> None:
        self.capacity = len(images)
        self._batch = ReplayBatch(images=images, ids=torch.arange(len(images)))

    def __len__(self) -> int:
        return len(self._batch.ids)

    def insert(self, images: torch.Tensor, embeddings: torch.Tensor | None, **_: Any) -> InsertReport:
        return InsertReport()

    def sample(self, n: int) -> ReplayBatch:
        return self._batch

    def refresh(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        pass


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="auto")
    arguments.add_argument("--precision", default="auto")
    arguments.add_argument("--engines", nargs="+", default=["auto"])
    arguments.add_argument("--presets", nargs="+", default=["default"])
    arguments.add_argument("--method", default="climb")
    arguments.add_argument("--backbone", default="resnet18")
    arguments.add_argument("--image-size", type=int, default=32)
    arguments.add_argument("--replay-batch", type=int, help="replayed images; by default the preset's")
    arguments.add_argument("--steps", type=int, default=15_000, help="length of the run for which auto chooses")
    arguments.add_argument("--warm-up", type=int, default=60, help="mini-batches before timing")
    arguments.add_argument("--batches", type=int, default=100, help="mini-batches timed")
    arguments.add_argument("--parts", action="store_true", help="also the parts of the step, and the share of the peak")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    device = resolve_device(given.device)
    rows = []
    for preset in given.presets:
        for kind in given.engines:
            row = measure(given, device, preset, kind)
            rows.append(row)
            if not given.json:
                print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if given.json:
        print(json.dumps(rows, indent=2))


def measure(given: argparse.Namespace, device: torch.device, preset: str, kind: str) -> dict[str, Any]:
    torch.compiler.reset()  # otherwise a second preset would be compiled as a variant of the first
    config = LearnerConfig(method=given.method, backbone=given.backbone, image_size=given.image_size)
    config = apply_preset(config, preset)
    if given.replay_batch:
        config = replace(config, replay_batch=given.replay_batch)

    def make(choices: Choices) -> Engine:
        place: dict[str, Any] = {"device": device, "precision": choices.precision, "layout": choices.layout}
        return build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, seed=0, kind=choices.engine, **place)

    choices = choose(given.precision, kind, device=device, steps=given.steps, make=make)
    full, fixed = make(choices), make(choices)
    side = given.image_size
    replay = torch.randint(0, 256, (config.replay_batch, 3, side, side), dtype=torch.uint8, device=device)
    object.__setattr__(fixed.parts, "memory", FixedReplay(replay))
    stream = torch.randint(0, 256, (50, config.stream_batch, 3, side, side), dtype=torch.uint8, device=device)
    began = time.perf_counter()
    for number in range(given.warm_up):
        for engine in (full, fixed):
            engine.observe(stream[number % 50])
    synchronise(device)
    warm_up = time.perf_counter() - began
    group = min(GROUP, given.batches)
    times: dict[str, list[float]] = {"full": [], "fixed": []}
    for _ in range(given.batches // group):
        for name, engine in (("full", full), ("fixed", fixed)):
            steps = engine.budget.steps
            seconds = timed(device, lambda engine=engine: [engine.observe(stream[k]) for k in range(group)])
            times[name].append(1e3 * seconds / (engine.budget.steps - steps))
    ms = {name: statistics.median(values) for name, values in times.items()}
    row = {
        "preset": preset,
        "image_size": side,
        **asdict(choices),
        "ms_per_step": round(ms["full"], 3),
        "fixed_replay_ms": round(ms["fixed"], 3),
        "overhead": round(ms["full"] / ms["fixed"], 3),
        "stored": 0 if full.parts.memory is None else len(full.parts.memory),
        "warm_up_s": round(warm_up, 1),
    }
    if given.parts:
        row |= time_parts(full, torch.cat([stream[0], replay]), ms)
    return row


def time_parts(engine: Engine, images: torch.Tensor, ms: dict[str, float]) -> dict[str, float]:
    """Milliseconds of each part of a step on ``images``, and the share of the device's peak."""
    parts, step, device = engine.parts, engine._eager_step, engine.device
    numbers = engine.augment.numbers(images, step.generator)
    views = engine.augment.views(images, numbers).flatten(0, 1)
    replayed = views[: 2 * engine.config.replay_batch]

    def encode(network: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
        with autocast(device, engine.precision):
            features, embeddings = network(inputs)
        return features.float().sum() + embeddings.float().square().sum()

    fast = compiled if engine.kind == "compiled" else lambda function: function
    has_teacher = parts.alignment is not None and parts.alignment.teacher is not None
    augment, student = fast(engine.augment.views), fast(lambda inputs: encode(parts.network, inputs))
    teacher = fast(lambda inputs: encode(parts.alignment.teacher, inputs)) if has_teacher else None

    def train(inputs: torch.Tensor) -> tuple[torch.Tensor]:
        loss = student(inputs)
        step.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        return (loss.detach(),)

    def average(inputs: torch.Tensor) -> tuple[torch.Tensor]:
        step.optimizer.step()
        parts.objective.after_step(parts.network)
        if parts.alignment is not None:
            parts.alignment.after_step(parts.network)
        return (inputs,)

    def look(inputs: torch.Tensor) -> tuple[torch.Tensor]:
        with torch.no_grad():
            return (teacher(inputs),)

    work: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
        "augment": (lambda *given: (augment(*given),), (images, numbers)),
        "student": (train, (views,)),
        "optimiser": (average, (views[:1],)),
    }
    if teacher is not None:
        work["teacher"] = (look, (replayed,))
    found: dict[str, float] = {}
    with numerics(device, engine.precision, tuned=engine.kind != "eager"):
        for name, (function, inputs) in work.items():
            run = function if engine.kind == "eager" else Captured(function, device=device)
            for _ in range(EAGER_CALLS + WARM_UPS + 2):
                run(*inputs)
            seconds = [
                timed(device, lambda run=run, inputs=inputs: [run(*inputs) for _ in range(10)]) for _ in range(9)
            ]
            found[name] = 1e3 * statistics.median(seconds) / 10
        with FlopCounterMode(display=False) as counter:
            train(views)
            if teacher is not None:
                look(replayed)
        reached = peak(device, engine.precision)
    found["memory"] = ms["full"] - ms["fixed"]
    found["rest"] = ms["full"] - sum(found.values())
    tera = counter.get_total_flops() / 1e12
    return {
        **{f"{name}_ms": round(value, 3) for name, value in found.items()},
        "tera_operations": round(tera, 4),
        "peak_tera_per_s": round(reached, 1),
        "share_of_peak": round(tera / (ms["full"] / 1e3) / reached, 3),
    }


def peak(device: torch.device, precision: str) -> float:
    """Tera operations per second of one large matrix product."""
    side = 8192 if device.type == "cuda" else 1024
    matrix = torch.randn(side, side, device=device, dtype=torch.bfloat16 if precision == "bf16" else torch.float32)
    for _ in range(3):
        matrix @ matrix
    seconds = statistics.median(timed(device, lambda: [matrix @ matrix for _ in range(5)]) for _ in range(5)) / 5
    return 2 * side**3 / seconds / 1e12


def timed(device: torch.device, work: Callable[[], object]) -> float:
    synchronise(device)
    began = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - began


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
