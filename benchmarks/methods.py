"""Time of a stream mini-batch of each method, relative to CLIMB, under the same budget.

    python benchmarks/methods.py --device cuda --preset paper
    python benchmarks/methods.py --device cuda --preset paper --together --methods finetune lump cla-b
    python benchmarks/methods.py --device cpu --backbone micro --batches 5 --warm-up 30 --methods climb scale finetune
    python benchmarks/methods.py --draw results/cifar100-20-methods/wall-clock.json

Times whole stream mini-batches (all passes, replay, distillation, insertion) on random images, in groups without a
pause. CLIMB and the other method alternate in one process; medians; memories are filled first. ``--together`` builds
all methods first and then times them in turn, so that all times are of the same hour; the device must hold all of
them.

Methods take 3 to 42 passes for a mini-batch of 10 images, so the time counts per mini-batch. PCMC is left out: it
trains only while it sleeps, every 2000 images. ``--draw`` draws the times in a file and saves the picture beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from climb.bench.figures import COLOURS, Canvas
from climb.engine import Engine, IidChunks, resolve_device, resolve_engine, resolve_precision
from climb.methods import METHODS, choose_method
from climb.methods.build import build_engine
from climb.settings.config import LearnerConfig
from climb.settings.presets import apply_preset

GROUPS = 5
"""Timed groups of mini-batches of each method."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="auto")
    arguments.add_argument("--engine", default="auto")
    arguments.add_argument("--preset", default="paper")
    arguments.add_argument("--backbone", default="resnet18")
    arguments.add_argument("--methods", nargs="+", default=[name for name in METHODS if name not in ("climb", "pcmc")])
    arguments.add_argument("--warm-up", type=int, default=260, help="mini-batches before timing; 250 fill a memory")
    arguments.add_argument("--batches", type=int, default=20, help="mini-batches of a group")
    arguments.add_argument(
        "--together", action="store_true", help="time all methods in turn instead of each with CLIMB"
    )
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--draw", type=Path)
    given = arguments.parse_args()
    if given.draw is not None:
        draw(given.draw)
        return
    climb = warmed_up(given, "climb")
    rows = []
    for names in [given.methods] if given.together else [[name] for name in given.methods]:
        others = [warmed_up(given, name) for name in names]
        for row in compare(given, climb, others):
            rows.append(row)
            if not given.json:
                print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if given.json:
        print(json.dumps(rows, indent=2))


def warmed_up(given: argparse.Namespace, name: str) -> TimedMethod:
    torch.compiler.reset()  # otherwise a method would be compiled as a variant of the previous ones
    timed = TimedMethod(given, name)
    timed.go(given.warm_up)
    return timed


def compare(given: argparse.Namespace, climb: TimedMethod, others: list[TimedMethod]) -> list[dict[str, Any]]:
    methods = [climb, *others]
    times: list[list[float]] = [[] for _ in methods]  # not by name: CLIMB may be compared with a second CLIMB
    for _ in range(GROUPS):
        for method, values in zip(methods, times, strict=True):
            values.append(method.go(given.batches) / given.batches)
    climb_ms, *others_ms = (1e3 * statistics.median(values) for values in times)
    return [
        {
            "method": other.method,
            "preset": given.preset,
            "engine": other.engine.kind,
            "ms_per_mini_batch": round(ms, 2),
            "climb_ms": round(climb_ms, 2),
            "ratio": round(ms / climb_ms, 2),
        }
        for other, ms in zip(others, others_ms, strict=True)
    ]


def draw(file: Path) -> None:
    """Draw the times in a file as bars, including CLIMB's."""
    measured = json.loads(file.read_text(encoding="utf-8"))
    ours = {"ms_per_mini_batch": statistics.median(row["climb_ms"] for row in measured["rows"]), "ratio": 1.0}
    rows = {"climb": ours, **{row["method"]: row for row in measured["rows"]}}
    times = {name: row["ms_per_mini_batch"] for name, row in rows.items()}
    names = sorted(times, key=times.__getitem__, reverse=True)
    canvas = Canvas(1, 1, width=6.0, height=0.3 * len(names) + 1.2)
    panel = canvas.panels[0]
    bars = panel.barh(names, [times[name] for name in names], color=[COLOURS[name == "climb"] for name in names])
    panel.bar_label(bars, [f"{rows[name]['ratio']:.2f}" for name in names], padding=3)
    panel.margins(x=0.1)
    panel.set_xlabel("ms for ten images of the stream; at the bars: relative to CLIMB")
    panel.set_title(f"{measured['device']}, torch {measured['torch']}", fontsize=10)
    canvas.save(file.with_suffix(""))


class TimedMethod:
    """A method that trains on random images for a given number of mini-batches at a time."""

    def __init__(self, given: argparse.Namespace, method: str) -> None:
        self.method = method
        device = resolve_device(given.device)
        config = choose_method(apply_preset(LearnerConfig(backbone=given.backbone), given.preset), method)
        self.engine: Engine = build_engine(
            config,
            mean=(0.5, 0.5, 0.5),
            std=(0.25, 0.25, 0.25),
            seed=0,
            device=device,
            precision=resolve_precision("auto", device),
            kind=resolve_engine(given.engine, device),
        )
        rows = config.stream_batch
        if isinstance(self.engine.parts.batch, IidChunks):  # takes the images of all its passes at once
            rows = config.passes * (config.stream_batch + config.replay_batch)
        shape = (50, rows, 3, config.image_size, config.image_size)
        self._stream = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
        self._next = 0

    def go(self, batches: int) -> float:
        """Seconds for the next ``batches`` mini-batches."""
        self._wait()
        began = time.perf_counter()
        for _ in range(batches):
            self.engine.observe(self._stream[self._next % 50])
            self._next += 1
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self.engine.device.type == "cuda":
            torch.cuda.synchronize(self.engine.device)


if __name__ == "__main__":
    main()
