"""In what a run differs from its method's recipe, so that a table can say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from climb.augment import POLICIES
from climb.config import LearnerConfig, MemoryConfig, RunConfig, from_dict, to_dict
from climb.errors import InputError
from climb.methods import choose_method, choose_objective
from climb.presets import apply_preset
from climb.recipes import RECIPES
from climb.workshop import find_objective

OF_THE_STREAM = ("backbone", "replay_batch", "memory")
"""What belongs to a stream more than to a method: a run that started from no recipe keeps its own."""
SCALED = {"learner.memory.stm_centroids": "short_term", "learner.memory.ltm_centroids": "long_term"}
"""Sizes that follow the capacity where they are not given."""


def flattened(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name.

    >>> flattened({"learner": {"lr": 0.1}})
    {'learner.lr': 0.1}
    """
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found.update(flattened(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = value
    return found


def views_of(config: Mapping[str, Any], *, own: bool = False) -> str:
    """The name of the views that a run was trained on, or of those that belong to its objective.

    >>> config = {"learner": {"objective": "simclr", "views": "common"}}
    >>> views_of(config), views_of(config, own=True)
    ('common', 'simclr')
    """
    learner = config.get("learner", {})
    given: str = learner.get("views", LearnerConfig.views)
    if given != LearnerConfig.views and not own:
        return given
    try:
        made = find_objective(learner.get("objective", LearnerConfig.objective)).views
    except InputError:  # an objective that is not installed here
        return LearnerConfig.views
    return next((name for name, policy in POLICIES.items() if policy is made), LearnerConfig.views)


def named_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings by dotted name, with the name of its views: those of the objective are views as others are. The
    kind of its stream is that of the saved scenario, where it replayed one.

    >>> named_settings({"learner": {"objective": "simclr", "views": "objective"}})["learner.views"]
    'simclr'
    >>> named_settings({"stream": {"kind": "regular", "manifest": {"kind": "irregular"}}})["stream.kind"]
    'irregular'
    """
    found = flattened(config)
    if "learner.views" in found:
        found["learner.views"] = views_of(config)
    if "stream.manifest.kind" in found:
        found["stream.kind"] = found["stream.manifest.kind"]
    return found


def unlike_recipe(config: Mapping[str, Any], *, own_rates: bool = True) -> dict[str, tuple[Any, Any]]:
    """The learner's settings that are not those of its method under its preset, by dotted name: the run's value, and
    the recipe's. The objective is no such setting: it brings its own rates.

    Args:
        config: a run's configuration, as in its `config.json` under ``config``.
        own_rates: whether the method is meant to run at its own rates; False means CLIMB's.
    """
    if "method" not in config.get("learner", {}):  # not a whole configuration
        return {}
    try:
        run = from_dict(RunConfig, dict(config)).resolved()
        usual = _usual(run, own_rates=own_rates)
        given, meant = (named_settings({"learner": to_dict(learner)}) for learner in (run.learner, usual))
    except InputError:  # a method, an objective or a setting that is not installed here
        return {}
    follows = MemoryConfig(capacity=run.learner.memory.capacity)
    for key, size in SCALED.items():
        if follows.capacity != usual.memory.capacity:
            meant[key] = getattr(follows, size)
    return {key: (value, meant[key]) for key, value in given.items() if value != meant[key]}


def started_from(run: RunConfig) -> LearnerConfig | None:
    """The learner of the recipe that a run names, or None where there is none for the run's dataset."""
    build = RECIPES.get(run.recipe)
    found = build() if build is not None else None
    return found.learner if found is not None and found.data.dataset == run.data.dataset else None


def usual_learner(run: RunConfig, plain: LearnerConfig) -> LearnerConfig:
    """A plain learner with a run's preset and method, nothing else changed and nothing left to derive."""
    chosen = choose_method(apply_preset(plain, run.learner.preset), run.learner.method)
    return replace(run, learner=chosen).resolved().learner


def _usual(run: RunConfig, *, own_rates: bool) -> LearnerConfig:
    learner = run.learner
    plain = started_from(run) or LearnerConfig(**{name: getattr(learner, name) for name in OF_THE_STREAM})
    plain = replace(plain, image_size=learner.image_size)
    usual = usual_learner(run, plain)
    if not own_rates:
        rates = apply_preset(plain, learner.preset)
        usual = replace(usual, lr=rates.lr, alignment_weight=rates.alignment_weight)
    return choose_objective(usual, learner.objective) if learner.objective != usual.objective else usual
