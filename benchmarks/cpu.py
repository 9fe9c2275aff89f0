"""Times on a CPU, of this code and of an earlier version, with everything on "auto".

    git worktree add /tmp/base 4b5022b
    python benchmarks/cpu.py --baseline /tmp/base
    python benchmarks/cpu.py --baseline /tmp/base --rows micro-1 --json
    python benchmarks/cpu.py --rows efficientnet-lite0             against this code in eager float32

Each version runs in a process of its own. The two take turns, so that a busy machine slows both. "ratio" is the median
of the ratios of neighbouring turns.

Most rows time a gradient step on random images, as a part of whole mini-batches: passes, replay, refresh, insertion.
"no-bf16" and "no-compiler" hide these from this version by environment variables. "evaluation" times the features of as
many images as CIFAR-100 has, and both probes after task 10 of 20. "embed-..." times the way from JPEG files of 227 px,
5,000 for micro and 500 for resnet18, to features.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

MICRO = {"backbone": "micro", "image_size": 32, "replay_batch": 64, "threads": 1}
ROWS: dict[str, dict[str, Any]] = {
    "micro-1": MICRO,
    "micro-2": {**MICRO, "replay_batch": 128, "threads": 2},
    "resnet18-16": {**MICRO, "backbone": "resnet18", "replay_batch": 16, "threads": 2},
    "resnet18-128": {**MICRO, "backbone": "resnet18", "replay_batch": 128, "threads": 2},
    "efficientnet-lite0": {"backbone": "efficientnet-lite0", "image_size": 128, "replay_batch": 32, "threads": 2},
    "no-bf16": {**MICRO, "environment": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}},
    "no-compiler": {**MICRO, "environment": {"CXX": "/no/compiler"}},
    "evaluation": {"work": "evaluation", "backbone": "micro", "image_size": 32, "classes": 100, "threads": 2},
    "embed-micro": {"work": "embed", "backbone": "micro", "image_size": 32, "files": 5000, "threads": 2},
    "embed-resnet18": {"work": "embed", "backbone": "resnet18", "image_size": 64, "files": 500, "threads": 2},
    "tiny": {"backbone": "micro", "image_size": 16, "replay_batch": 8, "threads": 1, "capacity": 50},
    "tiny-evaluation": {"work": "evaluation", "backbone": "micro", "image_size": 16, "classes": 4, "threads": 1},
    "tiny-embed": {"work": "embed", "backbone": "micro", "image_size": 16, "files": 20, "threads": 1},
}
"""Network, sizes and threads of each row; the rows "tiny..." are for the test."""
OURS = Path(__file__).resolve().parents[1]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--baseline", type=Path, help="checkout of the earlier version; by default, this code")
    standard = [name for name in ROWS if not name.startswith("tiny")]
    arguments.add_argument("--rows", nargs="+", choices=list(ROWS), default=standard)
    arguments.add_argument("--turns", type=int, default=9)
    arguments.add_argument("--seconds", type=float, default=2.0, help="length of a turn")
    arguments.add_argument("--steps", type=int, default=15_000, help="length of the run for which auto chooses")
    arguments.add_argument("--precision", default="auto")
    arguments.add_argument("--engine", default="auto")
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--worker", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.worker:
        work(json.loads(given.worker))
        return
    rows = []
    for name in given.rows:
        rows.append(compare(name, given))
        if not given.json:
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if given.json:
        print(json.dumps(rows, indent=2))


def compare(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """Time a row in both versions, in turns."""
    auto = {"precision": given.precision, "engine": given.engine, "steps": given.steps}
    base_row = {**ROWS[name], "environment": {}, "precision": "float32", "engine": "eager"}
    unit = {"embed": "ms_per_image", "evaluation": "ms_per_evaluation"}.get(ROWS[name].get("work", ""), "ms_per_step")
    with start(OURS, {**ROWS[name], **auto}) as ours, start(given.baseline or OURS, base_row) as base:
        ready = [json.loads(readline(worker)) for worker in (ours, base)]
        count = [max(1, round(given.seconds / message["seconds"])) for message in ready]
        times = [
            [turn(worker, number) for worker, number in zip((ours, base), count, strict=True)]
            for _ in range(given.turns)
        ]
    return {
        "row": name,
        unit: round(1e3 * statistics.median(mine for mine, _ in times), 2),
        "baseline_ms": round(1e3 * statistics.median(theirs for _, theirs in times), 2),
        "ratio": round(statistics.median(theirs / mine for mine, theirs in times), 2),
        "start_s": round(ready[0]["start"], 1),
        **ready[0]["choices"],
    }


def start(tree: Path, row: dict[str, Any]) -> subprocess.Popen[str]:
    """A worker process with the code of a checkout."""
    row = {**row}
    environment = {**os.environ, **row.pop("environment", {}), "PYTHONPATH": str(tree / "src")}
    environment["OMP_NUM_THREADS"] = str(row["threads"])
    command = [sys.executable, __file__, "--worker", json.dumps(row)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def readline(worker: subprocess.Popen[str]) -> str:
    assert worker.stdout is not None
    line = worker.stdout.readline()
    if not line:
        raise SystemExit(f"a worker ended with code {worker.wait()}; its error is above")
    return line


def turn(worker: subprocess.Popen[str], count: int) -> float:
    """Seconds per step of some mini-batches."""
    assert worker.stdin is not None
    worker.stdin.write(f"{count}\n")
    worker.stdin.flush()
    return float(readline(worker))


# -- in the worker, also with the code of older versions ---------------------------------------------------------------


def work(row: dict[str, Any]) -> None:
    """Prepare the work of a row, then do it as often as each line of standard input asks for."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        prepare = {"embed": embedding, "evaluation": evaluation}.get(row.get("work", ""), stepping)
        run, seconds, choices = prepare(row, Path(folder))
        start = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "start": start, "choices": choices}), flush=True)
        for line in sys.stdin:
            print(run(int(line)), flush=True)


Work = tuple[Callable[[int], float], float, dict[str, Any]]
"""A function from a number of repetitions to seconds per unit; seconds of one repetition; the choices."""


def stepping(row: dict[str, Any], folder: Path) -> Work:
    """Mini-batches of training. The unit is a gradient step."""
    engine, choices = build(row)
    batches = images(row, 50)
    fill(engine, batches)
    observe(engine, batches, 3)
    seconds = observe(engine, batches, 1) * engine.passes()
    return partial(observe, engine, batches), seconds, choices


def evaluation(row: dict[str, Any], folder: Path) -> Work:
    """An evaluation of an untrained network on random images with structure, which probes can learn."""
    import torch

    from climb.evaluation import Labelled, evaluate, extract_features
    from climb.evaluation.features import batch_size
    from climb.streams import Stream, regular

    row = {**row, "replay_batch": 64, "steps": 0}
    engine, choices = build(row)
    side, classes = row["image_size"], row["classes"]
    tasks = min(20, classes // 2)
    generator = torch.Generator().manual_seed(0)
    means = torch.rand(classes, 3, 4, 4, generator=generator)

    def split(per_class: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.arange(classes).repeat(per_class)
        coarse = means[labels] + 0.5 * torch.rand(len(labels), 3, 4, 4, generator=generator)
        pixels = (170 * coarse).to(torch.uint8)
        return pixels.repeat_interleave(side // 4, 2).repeat_interleave(side // 4, 3), labels

    train, test = split(500), split(100)
    stream = Stream(regular(classes, tasks, seed=0), train[1], test[1])
    segments = stream.groups if hasattr(stream, "groups") else stream.segments  # the baseline's name
    encoder = engine.parts.network.encoder

    def run(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            size = {"batch_size": batch_size(side), "device": engine.device, "precision": engine.precision}
            ours, theirs = (extract_features(encoder, part[0], engine.augment.plain, **size) for part in (train, test))
            data = Labelled(train_features=ours, train_labels=train[1], test_features=theirs, test_labels=test[1])
            evaluate(data, segments, after=tasks // 2 - 1, classes=classes, seed=0)
        return (time.perf_counter() - began) / count

    return run, run(1), choices


def embedding(row: dict[str, Any], folder: Path) -> Work:
    """JPEG files to features, by an untrained network. The unit is an image."""
    import torch
    from PIL import Image

    from climb import Climb
    from climb.export import embed, images_of, open_model

    generator = torch.Generator().manual_seed(0)
    pictures = folder / "images"
    pictures.mkdir()
    for number in range(row["files"]):  # smooth shapes with some grain, at the size of a photograph
        coarse = Image.fromarray(torch.randint(0, 256, (16, 16, 3), dtype=torch.uint8, generator=generator).numpy())
        coarse.resize((227, 227), Image.Resampling.BICUBIC).save(pictures / f"{number}.jpg", quality=90)
    learner = Climb(backbone=row["backbone"], image_size=row["image_size"], capacity=100, replay_batch=8, device="cpu")
    learner.partial_fit(torch.randint(0, 256, (10, 3, row["image_size"], row["image_size"]), dtype=torch.uint8))
    learner.save(folder / "model.safetensors")
    model = open_model(folder / "model.safetensors", device="cpu")

    def run(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            for _ in embed(model, images_of(pictures, row["image_size"])):
                pass
        return (time.perf_counter() - began) / count / row["files"]

    precision = getattr(model, "precision", "float32")
    return run, run(1) * row["files"], {"precision": precision, "threads": torch.get_num_threads()}


def build(row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """An engine of whichever version is imported, and its choices."""
    import torch

    from climb.methods.build import build_engine

    try:
        from climb.settings.config import LearnerConfig, MemoryConfig
        from climb.settings.presets import apply_preset
    except ImportError:
        from climb.config import LearnerConfig, MemoryConfig  # type: ignore[import-not-found,no-redef]
        from climb.presets import apply_preset  # type: ignore[import-not-found,no-redef]
    config = LearnerConfig(
        backbone=row["backbone"],
        image_size=row["image_size"],
        replay_batch=row["replay_batch"],
        memory=MemoryConfig(capacity=row.get("capacity", 1000)),
    )
    config, device = apply_preset(config, "default"), torch.device("cpu")

    def make(precision: str, kind: str, **layout: str) -> Any:
        place: dict[str, Any] = {"device": device, "precision": precision, "kind": kind, **layout}
        return build_engine(config, mean=(0.5,) * 3, std=(0.25,) * 3, seed=0, **place)

    if (row["precision"], row["engine"]) == ("float32", "eager"):
        return make("float32", "eager"), {}
    from climb.engine import Choices, choose

    def tried(choices: Choices) -> Any:
        return make(choices.precision, choices.engine, layout=choices.layout)

    choices = choose(row["precision"], row["engine"], device=device, steps=row["steps"], make=tried)
    torch.set_num_threads(choices.threads)
    return tried(choices), asdict(choices)


def images(row: dict[str, Any], batches: int) -> Any:
    """Random mini-batches of ten images."""
    import torch

    side = row["image_size"]
    return torch.randint(0, 256, (batches, 10, 3, side, side), dtype=torch.uint8)


def fill(engine: Any, batches: Any) -> None:
    """Insert images, without training on them, until there are enough to replay."""
    import torch

    memory, network = engine.parts.memory, engine.parts.network
    while memory.sample(engine.config.replay_batch) is None:
        batch = torch.randint_like(batches[0], 256)
        memory.insert(batch, torch.randn(len(batch), network.embedding_dim), embed=engine.embed)


def observe(engine: Any, batches: Any, count: int) -> float:
    """Seconds per gradient step of ``count`` mini-batches."""
    steps, began = engine.budget.steps, time.perf_counter()
    for number in range(count):
        engine.observe(batches[number % len(batches)])
    return (time.perf_counter() - began) / (engine.budget.steps - steps)


if __name__ == "__main__":
    main()
