"""Grid search: every combination of some settings, ranked by accuracy on held-out images only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean
from typing import Any

from climb.bench.grids import Entry, Grid
from climb.bench.layouts import Layout, Metric, RowSpec
from climb.bench.plan import Plan, result_of
from climb.errors import InputError, unknown
from climb.methods.validate import check_config, refuse_equal, refuse_unused
from climb.resolve import with_settings, with_weights
from climb.settings.config import LearnerConfig, MemoryConfig, RunConfig
from climb.settings.fields import Setting, settings_of

FIXED = ("method", "preset", "image_size", "weights_sha256")
"""Fields of the learner that are not tuned."""
METRIC = "validation_accuracy"


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """One combination of settings and its accuracy."""

    settings: Mapping[str, Any]
    validation_accuracy: float | None
    """Mean over seeds, in percent; None without a finished run."""
    seeds: int
    """Finished runs."""
    folders: tuple[str, ...]


def parse_over(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Settings and their values, from texts such as "lr=0.03,0.1" and "lambda=0.5,1,2".

    >>> parse_over(["lr=0.03,0.1", "lambda=0.5,2"])
    {'lr': (0.03, 0.1), 'alignment_weight': (0.5, 2.0)}
    """
    if not texts:
        raise InputError("nothing to tune: give --over NAME=VALUE,VALUE, such as --over lr=0.03,0.1 lambda=0.5,1,2")
    settings = tunable()
    symbols = {setting.symbol: name for name, setting in settings.items() if setting.symbol}
    over: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not sign or not values:
            raise InputError(f"--over takes NAME=VALUE,VALUE; given '{text}'")
        field = symbols.get(name, name)
        if field not in settings:
            raise unknown("setting", name, [*settings, *symbols])
        if field in over:
            raise InputError(f"{field} is given twice in --over")
        over[field] = tuple(dict.fromkeys(_value(settings[field], value) for value in values.split(",")))
    return over


def tunable() -> dict[str, Setting]:
    """The settings of the learner and its memory that can be tuned, by name."""
    declared = {**settings_of(LearnerConfig), **settings_of(MemoryConfig)}
    return {name: setting for name, setting in declared.items() if name not in FIXED}


def _value(setting: Setting, text: str) -> Any:
    parse = {"true": True, "false": False}.__getitem__ if setting.kind is bool else setting.kind
    try:
        return parse(text)
    except (KeyError, ValueError):
        values = {bool: "true or false", int: "whole numbers"}.get(setting.kind, "numbers")
        raise InputError(f"{setting.name} takes {values}; given '{text}'") from None


def combinations(over: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values.

    >>> combinations({"lr": (0.1, 0.3), "passes": (3,)})
    [{'lr': 0.1, 'passes': 3}, {'lr': 0.3, 'passes': 3}]
    """
    return [dict(zip(over, values, strict=True)) for values in product(*over.values())]


def tuning_grid(config: RunConfig, over: Mapping[str, Sequence[Any]], seeds: Sequence[int]) -> Grid:
    """The runs of a grid search: a row per combination.

    Raises:
        InputError: no learner can have these settings, or a setting has no effect in the method.
    """
    refuse_equal(config.learner, over)
    rows, entries = [], []
    for setting in combinations(over):
        own = with_settings(config, setting)
        if {"weights", "backbone"} & setting.keys():
            own = replace(own, learner=with_weights(replace(own.learner, weights_sha256=None)))
        check_config(own.learner)
        refuse_unused(own.learner.method, prune=setting.get("prune"))
        row = RowSpec(label=say_setting(setting), method=own.learner.method)
        rows.append(row)
        entries += [Entry(row=row.label, column="validation", config=replace(own, seed=seed)) for seed in seeds]
    metrics = (Metric(key=METRIC, label="validation accuracy"),)
    layout = Layout(name="tune", title="Grid search", rows=tuple(rows), columns=("validation",), metrics=metrics)
    return Grid(layout=layout, entries=tuple(entries))


def say_setting(setting: Mapping[str, Any]) -> str:
    """A combination in words.

    >>> say_setting({"lr": 0.1, "passes": 3})
    'lr 0.1, passes 3'
    """
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def rank(grid: Grid, plan: Plan, over: Mapping[str, Sequence[Any]]) -> list[Ranked]:
    """The combinations, best first, without a look at test images.

    Combinations with missing seeds come after complete ones, because a diverged seed counts against its combination.
    """
    ranking = []
    for row, setting in zip(grid.layout.rows, combinations(over), strict=True):
        folders = [plan.runs[entry.key].folder for entry in grid.entries if entry.row == row.label]
        results = [result for folder in folders if (result := result_of(folder)) is not None]
        if any(METRIC not in result for result in results):
            raise InputError(
                "these tasks are too small to hold out validation images (a tenth of each class); "
                "tune on a dataset with at least 10 training images a class"
            )
        accuracy = mean(float(result[METRIC]) for result in results) if results else None
        names = tuple(map(str, folders))
        ranking.append(Ranked(settings=setting, validation_accuracy=accuracy, seeds=len(results), folders=names))
    return sorted(
        ranking, key=lambda one: (one.seeds < len(one.folders), one.seeds == 0, -(one.validation_accuracy or 0.0))
    )
