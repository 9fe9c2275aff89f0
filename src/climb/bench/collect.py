"""Finished runs on disk, and how their settings differ from their recipe."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from climb.augment import POLICIES
from climb.bench.layouts import Metric
from climb.errors import InputError
from climb.files import files_below
from climb.methods import find_objective
from climb.resolve import resolve
from climb.runs import RunFolder
from climb.settings.config import LearnerConfig, MemoryConfig, RunConfig, from_dict, to_dict
from climb.settings.recipes import RECIPES

log = logging.getLogger("climb.bench")
RESULT = "result.json"
REQUIRED = ("config_hash", "dataset", "method", "seed", "tasks")
"""Keys of a result without which it has no place in a table."""
STREAM_FIELDS = ("backbone", "replay_batch", "memory")
"""Learner fields that a run without a recipe keeps: they depend on the stream more than on the method."""


@dataclass(frozen=True, kw_only=True)
class PlacedRun:
    """A finished run and its place in a table."""

    row: str
    column: str
    result: Mapping[str, Any]
    """Its ``result.json``: one seed."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Its configuration, as in ``config.json`` under ``config``."""
    path: Path | None = None
    """Its folder, for messages."""


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A finished run: its folder and what it wrote."""

    path: Path
    result: dict[str, Any]
    config: dict[str, Any]
    """All settings. Settings that the run's version did not have stand at their defaults."""

    def at(self, row: str, column: str) -> PlacedRun:
        """The run at a place of a table."""
        return PlacedRun(row=row, column=column, result=self.result, config=self.config, path=self.path)


def find_runs(paths: Iterable[str | Path]) -> list[FinishedRun]:
    """Every finished run in these folders and below, each once.

    A run below a given folder that cannot be read is skipped with a warning.

    Raises:
        InputError: a path does not exist or holds no finished run, or a run folder given by name cannot be read.
    """
    named: set[Path] = set()
    folders: dict[Path, None] = {}
    for path in map(Path, paths):
        if not path.exists():
            raise InputError(f"'{path}' does not exist; give run folders, or folders that hold some")
        results = [path] if path.name == RESULT else sorted(file for file in files_below(path) if file.name == RESULT)
        if not results:
            raise InputError(f"no finished run in '{path}': no {RESULT} there or below")
        named.add((path.parent if path.name == RESULT else path).resolve())
        folders |= dict.fromkeys(result.parent.resolve() for result in results)
    runs = [run for folder in folders if (run := _read(folder, named=folder in named)) is not None]
    if folders and not runs:
        raise InputError(f"none of the {len(folders)} runs found can be read")
    return runs


def _read(path: Path, *, named: bool) -> FinishedRun | None:
    folder = RunFolder(path)
    try:
        result = folder.result() or {}  # rejects a result that belongs to another run
        missing = [name for name in REQUIRED if name not in result]
        if missing:
            raise ValueError(f"its result lacks {', '.join(missing)}")
        config = to_dict(from_dict(RunConfig, folder.header()["config"]).resolved())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if named:
            raise InputError(f"'{path}' is not a complete run folder; leave it out or repair it: {error}") from error
        log.warning("skipped %s: not a complete run folder: %s", path, error)
        return None
    return FinishedRun(path=path, result=result, config=config)


def lookup(data: Mapping[str, Any], name: str) -> Any:
    """The value at a dotted name, or None.

    >>> lookup({"seconds": {"train": 7200}}, "seconds.train")
    7200
    """
    value: Any = data
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def value_at(result: Mapping[str, Any], metric: Metric) -> float | None:
    """The metric of a result, or None if the run lacks it.

    >>> value_at({"seconds": {"train": 7200}}, Metric(key="seconds.train", label="hours", scale=1 / 3600))
    2.0
    """
    value = lookup(result, metric.key)
    return None if value is None or not math.isfinite(value) else float(value) * metric.scale


def flattened(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name.

    >>> flattened({"learner": {"lr": 0.1}})
    {'learner.lr': 0.1}
    """
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= flattened(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def objective_views(config: Mapping[str, Any]) -> str:
    """The name of the views that belong to a run's objective."""
    try:
        policy = find_objective(config.get("learner", {}).get("objective", LearnerConfig.objective)).views
    except InputError:  # the objective is not installed here
        return LearnerConfig.views
    return next((name for name, known in POLICIES.items() if known is policy), LearnerConfig.views)


def views_of(config: Mapping[str, Any]) -> str:
    """The name of the views that a run was trained on.

    >>> views_of({"learner": {"objective": "simclr", "views": "objective"}})
    'simclr'
    """
    views: str = config.get("learner", {}).get("views", LearnerConfig.views)
    return objective_views(config) if views == LearnerConfig.views else views


def named_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """A run's settings by dotted name, with the name of its views and the kind of its saved scenario, if any.

    >>> named_settings({"stream": {"kind": "regular", "manifest": {"kind": "irregular"}}})["stream.kind"]
    'irregular'
    """
    flat = flattened(config)
    if "learner.views" in flat:
        flat["learner.views"] = views_of(config)
    if "stream.manifest.kind" in flat:
        flat["stream.kind"] = flat["stream.manifest.kind"]
    return flat


def recipe_differences(config: Mapping[str, Any], *, own_rates: bool = True) -> dict[str, tuple[Any, Any]]:
    """Learner settings that differ from those of the run's method under its preset: the run's value and the recipe's.

    The objective is not among them, because it brings its own rates.

    Args:
        config: a run's configuration, as in ``config.json`` under ``config``.
        own_rates: whether the method is expected at its own learning rate; False means CLIMB's.
    """
    if "method" not in config.get("learner", {}):  # not a whole configuration
        return {}
    try:
        run = from_dict(RunConfig, dict(config)).resolved()
        plain = started_from(run) or LearnerConfig(**{name: getattr(run.learner, name) for name in STREAM_FIELDS})
        plain = replace(plain, image_size=run.learner.image_size)
        expected = usual_learner(run, plain, own_rates=own_rates, objective=run.learner.objective)
        actual, wanted = (named_settings({"learner": to_dict(learner)}) for learner in (run.learner, expected))
    except InputError:  # a method, an objective or a setting that is not installed here
        return {}
    scaled = MemoryConfig(capacity=run.learner.memory.capacity)
    if scaled.capacity != expected.memory.capacity:  # the numbers of centroids follow it
        wanted["learner.memory.stm_centroids"] = scaled.short_term
        wanted["learner.memory.ltm_centroids"] = scaled.long_term
    return {key: (value, wanted[key]) for key, value in actual.items() if value != wanted[key]}


def started_from(run: RunConfig) -> LearnerConfig | None:
    """The learner of the recipe that a run names, or None if there is none for the run's dataset."""
    recipe = RECIPES[run.recipe]() if run.recipe in RECIPES else None
    return recipe.learner if recipe is not None and recipe.data.dataset == run.data.dataset else None


def usual_learner(run: RunConfig, plain: LearnerConfig, *, own_rates: bool = True, **options: Any) -> LearnerConfig:
    """A plain learner under a run's preset and method, with derived values filled in."""
    options = {"preset": run.learner.preset, "method": run.learner.method, "image_size": plain.image_size, **options}
    return resolve(replace(run, learner=plain), options, own_rates=own_rates).resolved().learner
