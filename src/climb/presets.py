"""Three readings of the paper. A preset applies to every method of a table; each published figure names its own.

- ``paper``: the paper as printed.
- ``default``: the best setting measured so far under the same budget.
- ``reference``: the released code's behaviour, faults included, so that its numbers can be explained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from climb.config import EvaluationConfig, LearnerConfig, Network, check_numbers
from climb.errors import unknown

PRESETS: dict[str, dict[str, Any]] = {
    # The memory embeds plain images with a forward of its own, centroids are refreshed by the updated encoder
    # (Algorithm 1, step 6), and the teacher follows after each mini-batch (section 3.3).
    "paper": {"embed_mode": "eval", "refresh_mode": "updated", "ema_period": "batch"},
    # The memory lives on the embeddings that training computes anyway; the teacher follows every step.
    "default": {"embed_mode": "views", "refresh_mode": "views", "ema_period": "step"},
    "reference": {
        "embed_mode": "train",
        "refresh_mode": "views",
        "ema_period": "step",
        "augment_per_batch": True,
        "train_aligner": False,
        "memory_faults": True,
    },
}

FAULTS: dict[str, dict[str, Any]] = {
    "batch-views": {"augment_per_batch": True},
    "frozen-aligner": {"train_aligner": False},
    "swapped-refresh": {"swapped_refresh": True},
    "train-embedding": {"embed_mode": "train"},
}
"""Faults of the released code that can be switched on one at a time. ``reference`` has these and more."""

NETWORK: dict[str, Network] = {"paper": "student", "default": "teacher", "reference": "student"}
"""Which network a preset evaluates."""


def learning_rates(preset: str, image_size: int) -> dict[str, float]:
    """Learning rate and alignment weight of CLIMB: the paper's CIFAR-100 pair for small images, its ImageNet-100 pair
    for large ones. ``default`` aligns less; the weight alone has not been compared on several seeds yet."""
    small = image_size <= 64
    weight = 0.5 if preset == "default" else (2.0 if small else 1.0)
    return {"lr": 0.3 if small else 0.1, "alignment_weight": weight}


def apply_preset(config: LearnerConfig, preset: str) -> LearnerConfig:
    """The learner configuration under a preset; other fields stay.

    >>> apply_preset(LearnerConfig(), "paper").alignment_weight
    2.0
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    check_numbers(config)  # the rates go by the size of images
    rates = learning_rates(preset, config.image_size)
    neutral = {"augment_per_batch": False, "train_aligner": True, "swapped_refresh": False, "memory_faults": False}
    return replace(config, **{**neutral, **PRESETS[preset], **rates, "preset": preset})


def with_faults(config: LearnerConfig, names: Iterable[str]) -> LearnerConfig:
    """The learner configuration with some faults of the released code switched on.

    >>> with_faults(LearnerConfig(), ["batch-views"]).augment_per_batch
    True
    """
    for name in names:
        if name not in FAULTS:
            raise unknown("fault", name, FAULTS)
        config = replace(config, **FAULTS[name])
    return config


def evaluated_network(config: EvaluationConfig, preset: str) -> EvaluationConfig:
    """The evaluation configuration under a preset."""
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    return replace(config, network=NETWORK[preset])
