"""Which run goes where: into a table of the paper, or into one made for the runs at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from climb.bench.cell import Layout, Placed, RowSpec, Settings
from climb.bench.collect import Found
from climb.bench.layouts import CA, CA_UPTO, CHOICES, FA, FORGETTING, LAYOUTS, PER_IMAGE
from climb.bench.recipe import flattened, named_settings, unlike_recipe
from climb.config import LearnerConfig
from climb.errors import InputError
from climb.methods import takes_objective
from climb.presets import FAULTS, apply_preset

ROW_KINDS = {row.method: row.kind for layout in LAYOUTS.values() for row in layout.rows}
NAMED_BY = ("learner.objective", "learner.preset")
"""What a row is named after besides its method, where it varies."""
PLACED_BY = ("recipe", "seed", "data", "stream", "learner.method", *NAMED_BY, "evaluation.knn", "evaluation.ridge")
"""Settings that never tell two rows of one name apart: they are names, decide the column, or add a number to a run
without changing another."""


def place(layout: Layout, runs: Sequence[Found]) -> tuple[list[Placed], list[Found]]:
    """The runs that fit a layout, each with its place (or places: a reference row stands in every group), and the
    rest."""
    placed: list[Placed] = []
    left: list[Found] = []
    for run in runs:
        column = f"{run.result['tasks']} tasks"
        rows = [row for row in layout.rows if _fits(row, layout, run)] if column in layout.columns else []
        placed += [Placed(row=row.label, column=column, result=run.result, config=run.config) for row in rows]
        if not rows:
            left.append(run)
    return placed, left


def fitting_layout(runs: Sequence[Found]) -> Layout:
    """The first table of the paper that has a place for every one of these runs; where a memory is not CLIMB's own, a
    table of sensitivity comes first."""
    fitting = [layout for layout in LAYOUTS.values() if not place(layout, runs)[1]]
    if not fitting:
        raise InputError(
            "no table of the paper has a place for all of these runs; leave some out, or name one by --layout: "
            + ", ".join(LAYOUTS)
        )
    varied = not all(_has(run.config, tuple(CHOICES.values())) for run in runs)
    return next((layout for layout in fitting if varied and any(row.group for row in layout.rows)), fitting[0])


def own_layout(runs: Sequence[Found]) -> tuple[Layout, list[Placed]]:
    """A layout for the runs at hand: a row per method and whatever else tells them apart, or from the method's recipe;
    a column per task count."""
    wheres = _row_settings(runs)
    labels = [
        ", ".join([base, *(f"{key.removeprefix('learner.')} = {value}" for key, value in where)])
        for base, where in zip(_base_names(runs), wheres, strict=True)
    ]
    several = len({run.result["dataset"] for run in runs}) > 1
    columns = {_column(run, several=several): run.result["tasks"] for run in runs}
    irregular = any(named_settings(run.config).get("stream.kind") != "regular" for run in runs)
    rows = {label: (run.result["method"], where) for label, run, where in zip(labels, runs, wheres, strict=True)}
    layout = Layout(
        name="runs",
        title="Runs on " + ", ".join(sorted({run.result["dataset"] for run in runs})),
        rows=tuple(
            sorted(
                (
                    RowSpec(label=label, method=name, kind=ROW_KINDS.get(name, "method"), where=where)
                    for label, (name, where) in rows.items()
                ),
                key=lambda row: (("bound", "method", "indicative").index(row.kind), row.label),
            )
        ),
        columns=tuple(sorted(columns, key=lambda column: (columns[column], column))),
        metrics=(CA, FA, CA_UPTO, FORGETTING, *(PER_IMAGE if irregular else ())),
    )
    placed = [
        Placed(row=label, column=_column(run, several=several), result=run.result, config=run.config)
        for label, run in zip(labels, runs, strict=True)
    ]
    return layout, placed


def _base_names(runs: Sequence[Found]) -> list[str]:
    """Each run's method, with its preset where several stand together, and with an objective that is not SimCLR.

    A method that brings its own objective is not named after the configured one, which it does not look at.
    """
    flat = [flattened(run.config) for run in runs]
    for run, each in zip(runs, flat, strict=True):
        if not takes_objective(run.result["method"]):
            each.pop("learner.objective", None)
    found = {key: {each[key] for each in flat if key in each} for key in NAMED_BY}
    keys = [key for key, values in found.items() if len(values) > 1]
    if not found["learner.objective"] <= {LearnerConfig.objective}:
        keys = list(dict.fromkeys(["learner.objective", *keys]))
    said = [[str(each[key]) for key in keys if each.get(key) is not None] for each in flat]
    return [
        " ".join([str(run.result["method"]), *([f"({', '.join(words)})"] if words else [])])
        for run, words in zip(runs, said, strict=True)
    ]


def _row_settings(runs: Sequence[Found]) -> list[Settings]:
    """The settings that a run's row is named after: those in which runs of one base name differ from each other, or
    one of them from its method's recipe."""
    bases = _base_names(runs)
    # Which network a table shows, not which were asked for: "both" has the same numbers as the first of them alone.
    flat = [{**named_settings(run.config), "evaluation.network": run.result.get("evaluated")} for run in runs]
    keys: dict[str, list[str]] = {}
    for base in dict.fromkeys(bases):
        alike = [(run, each) for run, each, name in zip(runs, flat, bases, strict=True) if name == base]
        unlike = {key for run, _ in alike for key in unlike_recipe(run.config)}
        varying = {
            key
            for key in {key for _, each in alike for key in each}
            if not key.startswith(PLACED_BY) and len({str(each.get(key)) for _, each in alike}) > 1
        }
        keys[base] = sorted(unlike | varying)
    return [tuple((key, each.get(key)) for key in keys[base]) for base, each in zip(bases, flat, strict=True)]


def _fits(row: RowSpec, layout: Layout, run: Found) -> bool:
    where = layout.where + row.where
    return row.method == run.result["method"] and _has(run.config, where + _as_preset(run, but=where))


def _as_preset(run: Found, *, but: Settings) -> Settings:
    """What a run's preset says of the faults that can be switched on by themselves: a run with one of them stands only
    where that is what a row is about."""
    preset = apply_preset(LearnerConfig(), run.config["learner"]["preset"])
    named = {f"learner.{field}": getattr(preset, field) for fields in FAULTS.values() for field in fields}
    return tuple((key, value) for key, value in named.items() if key not in dict(but))


def _has(config: Mapping[str, Any], settings: Settings) -> bool:
    found = named_settings(config)
    return all(found.get(key) == value for key, value in settings)


def _column(run: Found, *, several: bool) -> str:
    kind = named_settings(run.config).get("stream.kind", "regular")
    tasks = f"{run.result['tasks']} {'' if kind == 'regular' else kind + ' '}tasks"
    return f"{run.result['dataset']}, {tasks}" if several else tasks
