"""The three readings of the paper and the preset for pretrained weights, value by value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from climb.errors import InputError
from climb.resolve import resolve
from climb.settings.config import EvaluationConfig, LearnerConfig, RunConfig
from climb.settings.presets import FAULTS, NETWORK, PRESETS, apply_preset, with_faults
from climb.settings.recipes import get_recipe

SCRATCH = {
    "statistics": "batch",
    "align_to_start": False,
    "student_share": 1.0,
    "head_lr": None,
    "head_warmup": 0,
    "views": "objective",
    "guard": False,
}
SOUND = {"augment_per_batch": False, "train_aligner": True, "swapped_refresh": False, "memory_faults": False}
EXPECTED: dict[str, dict[str, Any]] = {
    "paper": {"embed_mode": "eval", "refresh_mode": "updated", "ema_period": "batch", **SOUND, **SCRATCH},
    "default": {"embed_mode": "views", "refresh_mode": "views", "ema_period": "step", **SOUND, **SCRATCH},
    "adapt": {
        "embed_mode": "views",
        "refresh_mode": "views",
        "ema_period": "step",
        **SOUND,
        "statistics": "start",
        "align_to_start": True,
        "student_share": 0.5,
        "head_lr": 0.03,
        "head_warmup": 40,
        "views": "adapt",
        "guard": True,
    },
    "reference": {
        **SCRATCH,
        "embed_mode": "train",
        "refresh_mode": "views",
        "ema_period": "step",
        "augment_per_batch": True,
        "train_aligner": False,
        "memory_faults": True,
    },
}


def test_there_are_four() -> None:
    assert set(PRESETS) == set(NETWORK) == set(EXPECTED)


@pytest.mark.parametrize("preset", sorted(EXPECTED))
@pytest.mark.parametrize("before", sorted(EXPECTED))
def test_values_whatever_was_applied_before(preset: str, before: str) -> None:
    config = apply_preset(apply_preset(LearnerConfig(), before), preset)
    assert {name: getattr(config, name) for name in EXPECTED[preset]} == EXPECTED[preset]
    assert config.preset == preset


@pytest.mark.parametrize(
    ("preset", "image_size", "lr", "weight"),
    [
        ("paper", 32, 0.3, 2.0),
        ("paper", 224, 0.1, 1.0),
        ("reference", 32, 0.3, 2.0),
        ("reference", 224, 0.1, 1.0),
        ("default", 32, 0.3, 0.5),
        ("default", 224, 0.1, 0.5),
        ("paper", 64, 0.3, 2.0),
        ("adapt", 32, 0.001, 2.0),
        ("adapt", 224, 0.001, 2.0),
    ],
)
def test_rates(preset: str, image_size: int, lr: float, weight: float) -> None:
    config = apply_preset(LearnerConfig(image_size=image_size), preset)
    assert (config.lr, config.alignment_weight) == (lr, weight)


@pytest.mark.parametrize("preset", sorted(EXPECTED))
def test_what_no_preset_touches_is_the_papers(preset: str) -> None:
    config = apply_preset(LearnerConfig(), preset)
    assert (config.stream_batch, config.replay_batch, config.passes) == (10, 128, 3)
    assert (config.momentum, config.weight_decay, config.temperature, config.ema_decay) == (0.9, 1e-4, 0.5, 0.999)
    memory = config.memory
    assert (memory.capacity, memory.short_term, memory.long_term, memory.images_per_centroid) == (2500, 100, 60, 30)
    assert (memory.window, memory.novelty_percentile, memory.stm_rate, memory.ltm_accept) == (1000, 0.95, 0.1, 0.5)
    assert memory.prune == "anchor"


def test_other_fields_stay() -> None:
    config = replace(LearnerConfig(), method="cla-e", passes=7, backbone="micro")
    changed = apply_preset(config, "paper")
    assert (changed.method, changed.passes, changed.backbone) == ("cla-e", 7, "micro")


def test_the_network_evaluated() -> None:
    base = RunConfig(evaluation=EvaluationConfig(epochs=3))
    found = {preset: resolve(base, {"preset": preset}).evaluation for preset in PRESETS}
    assert {preset: config.network for preset, config in found.items()} == {
        "paper": "student",
        "default": "teacher",
        "reference": "student",
        "adapt": "average",
    }
    assert all(config.epochs == 3 for config in found.values())
    assert {preset: get_recipe("demo", preset=preset).evaluation.network for preset in PRESETS} == NETWORK


def test_unknown_presets_are_refused() -> None:
    with pytest.raises(InputError, match="unknown preset 'papre'; did you mean 'paper'"):
        apply_preset(LearnerConfig(), "papre")


def test_faults_are_off_until_they_are_named() -> None:
    config = apply_preset(LearnerConfig(), "paper")
    both = with_faults(config, ["batch-views", "frozen-aligner"])
    assert both == replace(config, augment_per_batch=True, train_aligner=False)
    assert with_faults(config, []) == config
    assert apply_preset(with_faults(config, FAULTS), "paper") == config
    with pytest.raises(InputError, match="unknown fault 'batch-view'; did you mean 'batch-views'"):
        with_faults(config, ["batch-view"])
