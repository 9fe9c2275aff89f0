"""What fits which machine, and what fits a budget."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import Literal

import torch

from climb.config import LearnerConfig, MemoryConfig
from climb.errors import InputError, unknown
from climb.methods import build_parts
from climb.workshop import Workshop

SizeName = Literal["auto", "edge", "cpu", "gpu"]


@dataclass(frozen=True, kw_only=True)
class Size:
    """Settings for a kind of machine."""

    backbone: str
    image_size: int
    stream_batch: int
    replay_batch: int
    passes: int
    capacity: int


SIZES = {
    "edge": Size(backbone="micro", image_size=32, stream_batch=10, replay_batch=16, passes=1, capacity=500),
    "cpu": Size(backbone="micro", image_size=32, stream_batch=10, replay_batch=64, passes=1, capacity=2500),
    "gpu": Size(backbone="resnet18", image_size=64, stream_batch=10, replay_batch=128, passes=3, capacity=2500),
}
"""A single-board computer, a machine without an accelerator, one with it."""


def size_for(name: str, device: torch.device) -> Size:
    """The size called ``name``; "auto" goes by the device."""
    if name == "auto":
        name = "cpu" if device.type == "cpu" else "gpu"
    if name not in SIZES:
        raise unknown("size", name, ["auto", *SIZES])
    return SIZES[name]


def with_budget(config: LearnerConfig, budget: str | int) -> LearnerConfig:
    """The configuration whose memory holds so many images ("2500"), or takes so many megabytes ("200MB").

    Megabytes (1 MB is 1,000,000 bytes) cover all that the memory reserves: images, centroids, embeddings.

    >>> with_budget(LearnerConfig(), "1000").memory.capacity
    1000
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(MB|GB)?\s*", str(budget), re.IGNORECASE)
    if match is None or (match[2] is None and "." in match[1]):
        raise InputError(f"budget is '{budget}'; type a number of images (2500) or of megabytes (200MB)")
    if match[2] is None:
        return _with_capacity(config, int(match[1]))
    most = int(float(match[1]) * (1_000_000 if match[2].upper() == "MB" else 1_000_000_000))
    _check_bytes(most, "that budget is")
    fits, too_many = 0, most // (3 * config.image_size**2) + 1
    while too_many - fits > max(1, too_many // 200):  # within half a percent: what one image takes may grow with many
        middle = (fits + too_many) // 2
        if _memory_bytes(_with_capacity(config, middle)) <= most:
            fits = middle
        else:
            too_many = middle
    if fits == 0:
        raise InputError(f"a budget of {budget} has no room for an image of {config.image_size} px; give more")
    return _with_capacity(config, fits)


def check_room(config: LearnerConfig) -> None:
    """Refuse a memory whose images alone are more than this machine has room for.

    >>> check_room(LearnerConfig(memory=MemoryConfig(capacity=10**12)))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    climb.errors.InputError: a memory of 1000000000000 images of 32 px takes 3072000.0 GB; this machine has ... GB: ...
    """
    capacity, side = config.memory.capacity, config.image_size
    _check_bytes(3 * side**2 * capacity, f"a memory of {capacity} images of {side} px takes")


def _check_bytes(nbytes: int, said: str) -> None:
    has = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > has:
        raise InputError(
            f"{said} {nbytes / 1e9:.1f} GB; this machine has {has / 1e9:.1f} GB: give a smaller --budget, "
            "in images or megabytes"
        )


def _with_capacity(config: LearnerConfig, capacity: int) -> LearnerConfig:
    return replace(config, memory=replace(config.memory, capacity=capacity))


def _memory_bytes(config: LearnerConfig) -> int:
    """What the memory of a configuration would reserve, without reserving it."""
    # The network decides the length of embeddings alone; everything on the meta device has a size and no bytes.
    try:
        made = build_parts(Workshop(config=config, seed=0, device=torch.device("meta"))).memory
    except InputError:  # too small to be built; said so later, with all limits
        return 0
    return 0 if made is None else made.nbytes


def base_config(size: Size) -> LearnerConfig:
    """The learner of a size, before method and preset."""
    return LearnerConfig(
        backbone=size.backbone,
        image_size=size.image_size,
        stream_batch=size.stream_batch,
        replay_batch=size.replay_batch,
        passes=size.passes,
        memory=MemoryConfig(capacity=size.capacity),
    )
