"""The memory of a run folder for display: `memory.safetensors`, with small images, or the last checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F

from climb.errors import InputError
from climb.memory.snapshot import MemorySnapshot, take_snapshot
from climb.methods import find_method
from climb.methods.factory import substitutes

SMALL = 48
"""Largest side, in pixels, of the images in `memory.safetensors`."""


def snapshot_of(state: dict[str, Any], *, learner: Mapping[str, Any]) -> MemorySnapshot | None:
    """The memory in a state of it.

    None if the method is unknown here, declares no memory, or has one that shows no groups.

    Args:
        state: the memory's part of a checkpoint or of a file of `Climb.save`.
        learner: the learner's configuration, as stored.
    """
    return take_snapshot(memory_class_of(learner), state) if state else None


def memory_class_of(learner: Mapping[str, Any]) -> type:
    """The class of the memory under a stored configuration; None's class if there is none or it is unknown.

    >>> memory_class_of({"method": "climb"}).__name__, memory_class_of({"method": "finetune"}).__name__
    ('CentroidMemory', 'NoneType')
    """
    try:
        declared = find_method(learner["method"]).memory
    except InputError:  # a plug-in that is not installed
        return type(None)
    if not isinstance(declared, type):
        return type(None)
    return next((other for setting, other in substitutes(declared).items() if learner.get(setting)), declared)


def with_small_images(snapshot: MemorySnapshot, side: int = SMALL) -> MemorySnapshot:
    """A copy with images of at most ``side`` pixels."""
    return replace(snapshot, groups=[replace(group, images=_shrunk(group.images, side)) for group in snapshot.groups])


def _shrunk(images: torch.Tensor, side: int) -> torch.Tensor:
    largest = max(images.shape[-2:])
    if largest <= side or len(images) == 0:
        return images
    size = [max(1, round(length * side / largest)) for length in images.shape[-2:]]
    small = F.interpolate(images.float(), size=size, mode="bilinear", antialias=True, align_corners=False)
    return small.round_().clamp_(0, 255).to(torch.uint8)
