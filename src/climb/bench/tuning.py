"""The paper's grid search: every combination of some settings, ranked by accuracy on held-out images alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean
from typing import Any, get_type_hints

from climb.bench.cell import Layout, Metric, RowSpec
from climb.bench.grids import Entry, Grid
from climb.bench.plan import Plan, result_of
from climb.config import LearnerConfig, MemoryConfig, RunConfig
from climb.errors import InputError, unknown
from climb.impossible import check_config
from climb.unused import refuse_equal, refuse_unused

SYMBOLS = {
    "lambda": "alignment_weight",
    "tau_ema": "ema_decay",
    "b_s": "stream_batch",
    "b_r": "replay_batch",
    "n_p": "passes",
    "N": "capacity",
    "L": "stm_centroids",
    "K": "ltm_centroids",
    "M": "images_per_centroid",
    "w": "window",
    "p": "novelty_percentile",
    "alpha_stm": "stm_rate",
}
"""The paper's symbols for what may be tuned."""
FIXED = ("method", "preset", "memory", "image_size")
"""Fields of the learner that are not settings of it."""
METRIC = "validation_accuracy"

Setting = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """One combination of settings and what it is worth."""

    settings: Mapping[str, Any]
    validation_accuracy: float | None
    """Mean over seeds, in percent; None where no run was finished."""
    seeds: int
    """Runs behind it."""
    folders: tuple[str, ...]


def parse_over(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Settings and their values, from texts such as "lr=0.03,0.1" and "lambda=0.5,1,2".

    >>> parse_over(["lr=0.03,0.1", "lambda=0.5,2"])
    {'lr': (0.03, 0.1), 'alignment_weight': (0.5, 2.0)}
    """
    if not texts:
        raise InputError("nothing to tune: give --over NAME=VALUE,VALUE, such as --over lr=0.03,0.1 lambda=0.5,1,2")
    types = _tunable()
    over: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, sign, values = text.partition("=")
        if not sign or not values:
            raise InputError(f"--over takes NAME=VALUE,VALUE; given '{text}'")
        field = SYMBOLS.get(name, name)
        if field not in types:
            raise unknown("setting", name, [*types, *SYMBOLS])
        if field in over:
            raise InputError(f"{field} is given twice in --over")
        over[field] = tuple(dict.fromkeys(_value(field, types[field], value) for value in values.split(",")))
    return over


def combinations(over: Mapping[str, Sequence[Any]]) -> list[Setting]:
    """Every combination of the values.

    >>> combinations({"lr": (0.1, 0.3), "passes": (3,)})
    [{'lr': 0.1, 'passes': 3}, {'lr': 0.3, 'passes': 3}]
    """
    return [dict(zip(over, values, strict=True)) for values in product(*over.values())]


def with_settings(config: RunConfig, setting: Mapping[str, Any]) -> RunConfig:
    """The run with other settings of its learner or of its memory; what no learner can be built from is refused."""
    own = {item.name for item in dataclasses.fields(MemoryConfig)}
    memory = replace(config.learner.memory, **{key: value for key, value in setting.items() if key in own})
    rest = {key: value for key, value in setting.items() if key not in own}
    learner = replace(config.learner, memory=memory, **rest)
    check_config(learner)
    refuse_unused(learner.method, prune=setting.get("prune"))
    return replace(config, learner=learner)


def tuning_grid(config: RunConfig, over: Mapping[str, Sequence[Any]], seeds: Sequence[int]) -> Grid:
    """The runs of a grid search: a row for every combination."""
    refuse_equal(config.learner, over)
    entries, rows = [], []
    for setting in combinations(over):
        label = say_setting(setting)
        rows.append(RowSpec(label=label, method=config.learner.method))
        entries += [
            Entry(row=label, column="validation", config=with_settings(replace(config, seed=seed), setting))
            for seed in seeds
        ]
    layout = Layout(
        name="tune",
        title="Grid search",
        rows=tuple(rows),
        columns=("validation",),
        metrics=(Metric(key=METRIC, label="validation accuracy"),),
    )
    return Grid(layout=layout, entries=tuple(entries))


def say_setting(setting: Mapping[str, Any]) -> str:
    """A combination in words.

    >>> say_setting({"lr": 0.1, "passes": 3})
    'lr 0.1, passes 3'
    """
    return ", ".join(f"{name} {value}" for name, value in setting.items())


def rank(grid: Grid, plan: Plan, over: Mapping[str, Sequence[Any]]) -> list[Ranked]:
    """The combinations, best first; those that lack a seed after those that have all, and those without a finished run
    last: a rate at which some seeds fail is not known by the others. Looks at no test image's accuracy."""
    ranking = []
    for setting, row in zip(combinations(over), grid.layout.rows, strict=True):
        folders = [plan.runs[entry.config.config_hash()].folder for entry in grid.entries if entry.row == row.label]
        results = [result for folder in folders if (result := result_of(folder)) is not None]
        if any(METRIC not in result for result in results):
            raise InputError(
                "these tasks are too small to hold out validation images (a tenth of each class); "
                "tune on a dataset with at least 10 training images a class"
            )
        values = [float(result[METRIC]) for result in results]
        ranking.append(
            Ranked(
                settings=setting,
                validation_accuracy=mean(values) if values else None,
                seeds=len(values),
                folders=tuple(str(folder) for folder in folders),
            )
        )
    return sorted(
        ranking,
        key=lambda one: (
            one.seeds == len(one.folders),
            -math.inf if one.validation_accuracy is None else one.validation_accuracy,
        ),
        reverse=True,
    )


def _tunable() -> dict[str, Any]:
    """Each setting with its type."""
    learner, memory = get_type_hints(LearnerConfig), get_type_hints(MemoryConfig)
    return {name: kind for name, kind in {**learner, **memory}.items() if name not in FIXED}


def _value(name: str, kind: Any, text: str) -> Any:
    if kind is bool:
        if text not in ("true", "false"):
            raise InputError(f"{name} takes true or false; given '{text}'")
        return text == "true"
    number = {float: float, int: int, int | None: int}.get(kind)
    if number is None:
        return text
    try:
        return number(text)
    except ValueError:
        raise InputError(f"{name} takes {'whole ' if number is int else ''}numbers; given '{text}'") from None
