"""Presets: four versions of the settings. A preset applies to every method of a table; published numbers name theirs.

- ``paper``: the paper as printed.
- ``default``: the best setting measured so far under the same budget.
- ``reference``: the released code with its faults, to explain its numbers.
- ``adapt``: for networks that start from pretrained weights; chosen by itself if weights are given.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from climb.errors import unknown
from climb.settings.config import LearnerConfig, Network
from climb.settings.fields import settings_of

PRESETS: dict[str, dict[str, Any]] = {
    # The memory embeds plain images with a forward of its own, centroids are refreshed by the updated encoder
    # (Algorithm 1, step 6), and the teacher is updated after each mini-batch (section 3.3).
    "paper": {"embed_mode": "eval", "refresh_mode": "updated", "ema_period": "batch"},
    # The memory uses the embeddings of training; the teacher is updated after every step.
    "default": {},
    "reference": {"embed_mode": "train", "augment_per_batch": True, "train_aligner": False, "memory_faults": True},
    # From the search in results/adapt-pacs, one setting at a time; the combination has not been measured yet.
    "adapt": {
        "statistics": "start",
        "align_to_start": True,
        "student_share": 0.5,
        "head_lr": 0.03,
        "head_warmup": 40,
        "views": "adapt",
        "guard": True,
    },
}
"""The settings in which a preset differs from the defaults of `LearnerConfig`, but for the rates."""

ADAPT = "adapt"
"""The preset for pretrained weights."""

FAULTS: dict[str, dict[str, Any]] = {
    "batch-views": {"augment_per_batch": True},
    "frozen-aligner": {"train_aligner": False},
    "swapped-refresh": {"swapped_refresh": True},
    "train-embedding": {"embed_mode": "train"},
}
"""Faults of the released code by name, with the settings that switch them on. ``reference`` has more."""

NETWORK: dict[str, Network] = {"paper": "student", "default": "teacher", "reference": "student", "adapt": "average"}
"""The network that a preset evaluates."""


def learning_rates(preset: str, image_size: int) -> dict[str, Any]:
    """Learning rate and alignment weight of CLIMB: the paper's CIFAR-100 pair for small images, its ImageNet-100 pair
    for large ones. ``default`` aligns less; the weight alone has not been compared on several seeds yet. ``adapt`` has
    one pair for every method and size."""
    if preset == ADAPT:
        return {"lr": 0.001, "alignment_weight": 2.0}
    small = image_size <= 64
    weight = 0.5 if preset == "default" else (2.0 if small else 1.0)
    return {"lr": 0.3 if small else 0.1, "alignment_weight": weight}


def apply_preset(config: LearnerConfig, preset: str) -> LearnerConfig:
    """The learner configuration under a preset. Fields that no preset sets are kept.

    >>> apply_preset(LearnerConfig(), "paper").alignment_weight
    2.0
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    settings_of(LearnerConfig)["image_size"].check(config.image_size)  # the rates depend on it
    rates = learning_rates(preset, config.image_size)
    neutral = {name: getattr(LearnerConfig, name) for own in [*PRESETS.values(), *FAULTS.values()] for name in own}
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
