"""How long does a gradient step take, and what does the memory add?

    python benchmarks/step.py --device cuda --presets default paper --engines eager captured

Times whole stream mini-batches (all passes, replay, refresh, insertion) on random images, divided by the passes.
"overhead" is the ratio to the same engine whose memory is replaced by a fixed tensor of images, in one process,
alternating. Medians after a warm-up, the device synchronised around each mini-batch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from typing import Any

import torch

from climb.config import LearnerConfig
from climb.engine import Engine, resolve_device, resolve_engine, resolve_precision
from climb.learner import build_engine
from climb.memory import InsertReport, ReplayBatch
from climb.presets import apply_preset


class FixedReplay:
    """The same images at every draw: what a step costs when the memory costs nothing."""

    space = None
    inserts = "after"
    bounded = True
    capacity = 0
    nbytes = 0

    def __init__(self, images: torch.Tensor) -> None:
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
    arguments.add_argument("--backbone", default="resnet18")
    arguments.add_argument("--image-size", type=int, default=32)
    arguments.add_argument("--warm-up", type=int, default=60, help="mini-batches before timing")
    arguments.add_argument("--batches", type=int, default=60, help="mini-batches timed")
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
    config = apply_preset(LearnerConfig(backbone=given.backbone, image_size=given.image_size), preset)
    precision = resolve_precision(given.precision, device)
    engine_kind = resolve_engine(kind, device)
    arguments: dict[str, Any] = {
        "mean": (0.5,) * 3,
        "std": (0.25,) * 3,
        "seed": 0,
        "device": device,
        "precision": precision,
        "kind": engine_kind,
    }
    full = build_engine(config, **arguments)
    fixed = build_engine(config, **arguments)
    side = given.image_size
    replay = torch.randint(0, 256, (config.replay_batch, 3, side, side), dtype=torch.uint8, device=device)
    object.__setattr__(fixed.parts, "memory", FixedReplay(replay))
    stream = torch.randint(0, 256, (50, config.stream_batch, 3, side, side), dtype=torch.uint8, device=device)
    times: dict[str, list[float]] = {"full": [], "fixed": []}
    for number in range(given.warm_up + given.batches):
        for name, engine in (("full", full), ("fixed", fixed)):
            seconds = once(engine, stream[number % 50], device)
            if number >= given.warm_up:
                times[name].append(seconds)
    ms = {name: 1e3 * statistics.median(values) / config.passes for name, values in times.items()}
    return {
        "preset": preset,
        "engine": engine_kind,
        "precision": precision,
        "ms_per_step": round(ms["full"], 3),
        "fixed_replay_ms": round(ms["fixed"], 3),
        "overhead": round(ms["full"] / ms["fixed"], 3),
        "stored": len(full.parts.memory),  # type: ignore[arg-type]
    }


def once(engine: Engine, images: torch.Tensor, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = time.perf_counter()
    engine.observe(images)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
