"""A gradient step of climb beside the loop that people write: plain torch, views of kornia, a list as reservoir.

    python benchmarks/peers.py --threads 2 --json
    python benchmarks/peers.py --backbones micro --replay-batch 64 --threads 1

Both train the same network with the same sizes, threads, ranges of views, loss (NT-Xent) and optimiser, on random
images, and take turns in one process. climb runs with "auto", once with the same method (er-reservoir) and once with
its own (climb), which also distils from a teacher. "ratio" is the median of the ratios of neighbouring turns.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
import torch.nn.functional as F

from climb.augment import simclr
from climb.engine import Choices, Engine, choose
from climb.methods import choose_method
from climb.methods.build import build_engine
from climb.nets import build_network
from climb.precision import threads
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.settings.presets import apply_preset

MEAN, STD = (0.5,) * 3, (0.25,) * 3
METHODS = ("er-reservoir", "climb")


class PlainLoop:
    """Replay as in many tutorials. Nothing is tuned, nothing is slowed down on purpose."""

    def __init__(self, config: LearnerConfig) -> None:
        import kornia.augmentation as K

        side, policy = config.image_size, simclr(config.image_size)
        self.config = config
        self.network = build_network(config.backbone, side, generator=torch.Generator().manual_seed(0))
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
        )
        strengths = (policy.brightness, policy.contrast, policy.saturation, policy.hue)
        self.views = torch.nn.Sequential(
            K.RandomResizedCrop((side, side), scale=policy.crop_scale, ratio=policy.crop_ratio),
            K.RandomHorizontalFlip(p=policy.flip),
            K.ColorJitter(*strengths, p=policy.jitter),
            K.RandomGrayscale(p=policy.grayscale),
            K.Normalize(torch.tensor(MEAN), torch.tensor(STD)),
        )
        self.memory: list[torch.Tensor] = []
        self.seen = 0

    def observe(self, images: torch.Tensor) -> None:
        """Train on a mini-batch of the stream with replay, then store its images."""
        for _ in range(self.config.passes):
            replayed = random.sample(self.memory, min(self.config.replay_batch, len(self.memory)))
            batch = torch.cat([images, torch.stack(replayed)]) if replayed else images
            batch = batch.float() / 255
            first, second = self.views(batch), self.views(batch)
            _, embeddings = self.network(torch.cat([first, second]))
            loss = self.contrast(embeddings)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        for image in images:
            self.store(image)

    def contrast(self, embeddings: torch.Tensor) -> torch.Tensor:
        """NT-Xent."""
        unit = F.normalize(embeddings, dim=1)
        logits = unit @ unit.T / self.config.temperature
        logits.fill_diagonal_(float("-inf"))
        half = len(unit) // 2
        return F.cross_entropy(logits, torch.cat([torch.arange(half) + half, torch.arange(half)]))

    def store(self, image: torch.Tensor) -> None:
        """Reservoir sampling."""
        self.seen += 1
        if len(self.memory) < self.config.memory.capacity:
            self.memory.append(image)
        elif (place := random.randrange(self.seen)) < len(self.memory):
            self.memory[place] = image


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--backbones", nargs="+", default=["micro", "resnet18"])
    arguments.add_argument("--image-size", type=int, default=32)
    arguments.add_argument("--replay-batch", type=int, default=128)
    arguments.add_argument("--capacity", type=int, default=1000)
    arguments.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments.add_argument("--turns", type=int, default=9)
    arguments.add_argument("--seconds", type=float, default=2.0, help="length of a turn")
    arguments.add_argument("--steps", type=int, default=15_000, help="length of the run for which auto chooses")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    rows = []
    with threads(given.threads):
        for backbone in given.backbones:
            for row in compare(backbone, given):
                rows.append(row)
                if not given.json:
                    print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if given.json:
        print(json.dumps(rows, indent=2))


def compare(backbone: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Time the plain loop and climb's methods in turns; one row per method."""
    side, memory = given.image_size, MemoryConfig(capacity=given.capacity)
    config = LearnerConfig(backbone=backbone, image_size=side, replay_batch=given.replay_batch, memory=memory)
    config = apply_preset(config, "default")
    stream = torch.randint(0, 256, (200, 10, 3, side, side), dtype=torch.uint8)
    plain = PlainLoop(config)
    for image in stream.flatten(0, 1)[: 3 * given.replay_batch]:
        plain.store(image)
    learners: dict[str, Callable[[torch.Tensor], object]] = {"plain": plain.observe}
    counts = {"plain": 1}
    chosen: dict[str, Choices] = {}
    for method in METHODS:
        own = replace(choose_method(config, method), lr=config.lr)
        chosen[method], engine = started(own, given.steps)
        for batch in stream[: 1 + 3 * given.replay_batch // 10]:
            embeddings = torch.randn(len(batch), engine.parts.network.embedding_dim)
            assert engine.parts.memory is not None
            engine.parts.memory.insert(batch, embeddings, embed=engine.embed)
        learners[method] = engine.observe
    for name, observe in learners.items():
        timed(observe, stream[:3])
        counts[name] = max(1, round(given.seconds / timed(observe, stream[:1])))
    times = [
        {name: timed(observe, stream[: counts[name]]) for name, observe in learners.items()} for _ in range(given.turns)
    ]
    milliseconds = {name: 1e3 * statistics.median(turn[name] for turn in times) / config.passes for name in learners}
    return [
        {
            "backbone": backbone,
            "method": method,
            "ms_per_step": round(milliseconds[method], 2),
            "plain_ms": round(milliseconds["plain"], 2),
            "ratio": round(statistics.median(turn["plain"] / turn[method] for turn in times), 2),
            **asdict(chosen[method]),
        }
        for method in METHODS
    ]


def started(config: LearnerConfig, steps: int) -> tuple[Choices, Engine]:
    """climb's engine with what auto chooses on this machine."""
    device = torch.device("cpu")

    def make(choices: Choices) -> Engine:
        place: dict[str, Any] = {"device": device, "precision": choices.precision, "layout": choices.layout}
        return build_engine(config, mean=MEAN, std=STD, seed=0, kind=choices.engine, **place)

    choices = choose(device=device, steps=steps, make=make)
    return choices, make(choices)


def timed(observe: Callable[[torch.Tensor], object], batches: torch.Tensor) -> float:
    """Seconds per mini-batch."""
    began = time.perf_counter()
    for batch in batches:
        observe(batch)
    return (time.perf_counter() - began) / len(batches)


if __name__ == "__main__":
    main()
