"""Small engines for `check_method`, and the images that they observe."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from climb.engine import Engine, IidChunks, Observation
from climb.methods.build import build_engine
from climb.seeds import torch_generator
from climb.settings.config import LearnerConfig, MemoryConfig
from climb.testing.contract import contract

SIDE = 16
CONFIG = LearnerConfig(
    backbone="micro",
    image_size=SIDE,
    replay_batch=8,
    # Weight decay would move a parameter whose gradient is always zero, and so hide that nothing trains it.
    weight_decay=0.0,
    memory=MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=4, images_per_centroid=6, window=100),
)
# Slightly more than three capacities of images, so that memories fill and then select. After exactly three, a ring
# buffer whose position is not saved would be back at its start.
BATCHES = 19
BOUNDARIES = (BATCHES // 2, BATCHES + 2)
"""Mini-batches before which a task ends: one during training, one after the state has been taken."""


def build(config: LearnerConfig, seed: int) -> Engine:
    """A new engine."""
    with contract("the method cannot be built"):
        return build_engine(
            config,
            mean=(0.5, 0.5, 0.5),
            std=(0.25, 0.25, 0.25),
            seed=seed,
            device=torch.device("cpu"),
            precision="float32",
            kind="eager",
        )


def observe(engine: Engine, seed: int, number: int) -> Observation:
    """Let an engine observe the mini-batch of that number; a task may end before it."""
    if number in BOUNDARIES:
        with contract("a task cannot end"):
            engine.on_boundary()
    images = mini_batch(engine, seed, number)
    with contract(f"mini-batch {number + 1}, of {len(images)} images, cannot be learned from"):
        return engine.observe(images)


def mini_batch(engine: Engine, seed: int, number: int) -> torch.Tensor:
    """The mini-batch of that number: uint8 (n, 3, H, W), coloured blobs, which are more distinct than noise."""
    config = engine.config
    rows = config.stream_batch
    if isinstance(engine.parts.batch, IidChunks):
        rows = config.passes * (config.stream_batch + config.replay_batch)
    coarse = torch.rand(rows, 3, 4, 4, generator=torch_generator(seed, f"check {number}"))
    return (255 * F.interpolate(coarse, SIDE, mode="bilinear", align_corners=False)).to(torch.uint8)


def optimized(engine: Engine) -> list[torch.Tensor]:
    """All tensors that the optimiser steps."""
    return [tensor for group in engine._eager_step.optimizer.param_groups for tensor in group["params"]]


def same(one: Any, two: Any) -> bool:
    """Whether two tensors, or other plain values, are equal to the bit; nan equals nan."""
    if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
        return one is two or bool(one == two)
    equal = torch.equal(one, two)
    return equal or (one.shape == two.shape and torch.allclose(one, two, rtol=0, atol=0, equal_nan=True))
