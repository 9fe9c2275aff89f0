"""Where a method is tried: engines of a small configuration on one thread of the CPU, and the images they see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn

from climb.config import LearnerConfig, MemoryConfig
from climb.engine import Engine, IidChunks, Observation
from climb.learner import build_engine
from climb.methods import METHODS, Method
from climb.promise import promised
from climb.seeds import torch_generator

SIDE = 16
CONFIG = LearnerConfig(
    backbone="micro",
    image_size=SIDE,
    replay_batch=8,
    # It would move a parameter that gets no more than a gradient of zero, and so hide that nothing trains it.
    weight_decay=0.0,
    memory=MemoryConfig(capacity=60, stm_centroids=12, ltm_centroids=4, images_per_centroid=6, window=100),
)
# Three capacities of images and a little: memories fill, and then have to choose. After three, a place that goes round
# and that the state leaves out would be back at its start.
BATCHES = 19
BOUNDARIES = (BATCHES // 2, BATCHES + 2)
"""Mini-batches before which a task ends: one in the training, one in what follows once the state has been taken."""


@contextmanager
def registered(method: Method) -> Iterator[None]:
    """The method under its name for a while: engines are built from names."""
    before = METHODS.get(method.name)
    METHODS[method.name] = method
    try:
        yield
    finally:
        if before is None:
            del METHODS[method.name]
        else:
            METHODS[method.name] = before


@contextmanager
def one_thread() -> Iterator[None]:
    """Work this small is not worth sharing: on a busy machine threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def built(config: LearnerConfig, seed: int) -> Engine:
    """An engine at its first step."""
    with promised("the method cannot be built"):
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
    """Let an engine learn from the mini-batch of that number; a task may end before it."""
    if number in BOUNDARIES:
        with promised("a task cannot end"):
            engine.on_boundary()
    mini_batch = images(engine, seed, number)
    with promised(f"mini-batch {number + 1}, of {len(mini_batch)} images, cannot be learnt from"):
        return engine.observe(mini_batch)


def images(engine: Engine, seed: int, number: int) -> torch.Tensor:
    """The mini-batch of that number: blobs of colour, easier to tell apart than noise. uint8 (n, 3, H, W)."""
    config = engine.config
    rows = config.stream_batch
    if isinstance(engine.parts.batch, IidChunks):
        rows = config.passes * (config.stream_batch + config.replay_batch)
    coarse = torch.rand(rows, 3, 4, 4, generator=torch_generator(seed, f"check {number}"))
    return (255 * F.interpolate(coarse, SIDE, mode="bilinear", align_corners=False)).to(torch.uint8)


def modules(engine: Engine) -> dict[str, nn.Module]:
    """What may have parameters, by the name of its socket."""
    parts = engine.parts
    rooms = {"network": parts.network, "objective": parts.objective, "alignment": parts.alignment}
    return {room: module for room, module in rooms.items() if module is not None}


def trainable(engine: Engine) -> dict[str, nn.Parameter]:
    """Every parameter that is not frozen, by name."""
    return {
        f"{room}.{name}": parameter
        for room, module in modules(engine).items()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors are equal to the bit, nan and nan alike."""
    return torch.equal(one, two) or torch.allclose(one, two, rtol=0, atol=0, equal_nan=True)
