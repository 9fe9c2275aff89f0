"""Place finished runs in a table of the paper, or in a table made for these runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from climb.bench.collect import FinishedRun, PlacedRun, named_settings, recipe_differences
from climb.bench.layouts import CLIMB_CHOICES, LAYOUTS, PER_IMAGE, USUAL_METRICS, Layout, RowSpec, Settings, method_row
from climb.errors import InputError
from climb.methods.catalog import takes_objective
from climb.settings.config import LearnerConfig
from climb.settings.presets import FAULTS, apply_preset

NOT_NAMING = (
    *("recipe", "seed", "data", "stream", "learner.method", "learner.objective", "learner.preset"),
    *("evaluation.knn", "evaluation.ridge"),
)
"""Settings that never split a row: they are names, decide the column, or only add a number to a run."""


def place(layout: Layout, runs: Sequence[FinishedRun]) -> tuple[list[PlacedRun], list[FinishedRun]]:
    """The runs that fit a layout, at their places, and the rest. A reference row has a place in every group.

    A run with another fault than its preset has fits only rows that name the fault.
    """
    placed: list[PlacedRun] = []
    rest: list[FinishedRun] = []
    for run in runs:
        column, rows = _column(run), _rows(layout, run)
        placed += [run.at(row, column) for row in rows if column in layout.columns]
        rest += [] if rows and column in layout.columns else [run]
    return placed, rest


def extended(layout: Layout, runs: Sequence[FinishedRun]) -> Layout:
    """The layout with a row for each further method, and a column for each other number of tasks, of these runs.

    Runs with other settings than all runs of the table, such as another kind of stream, get no place.
    """
    fitting = [run for run in runs if _has(run, {**_no_faults(run), **layout.where})]
    known = {row.method for row in layout.rows}
    added = dict.fromkeys(run.result["method"] for run in fitting if run.result["method"] not in known)
    rows = (*layout.rows, *(method_row(method, label=method, where={}) for method in added))
    columns = dict.fromkeys([*layout.columns, *(_column(run) for run in fitting)])
    return replace(layout, rows=rows, columns=tuple(sorted(columns, key=lambda label: int(label.split()[0]))))


def _column(run: FinishedRun) -> str:
    return f"{run.result['tasks']} task{'s' * (run.result['tasks'] != 1)}"


def _rows(layout: Layout, run: FinishedRun) -> list[str]:
    """The labels of the rows to which a run belongs."""
    same = (row for row in layout.rows if row.method == run.result["method"])
    return [row.label for row in same if _has(run, {**_no_faults(run), **layout.where, **row.where})]


def _no_faults(run: FinishedRun) -> Settings:
    """The settings behind faults of the released code, as the preset of a run has them."""
    preset = apply_preset(LearnerConfig(), run.config["learner"]["preset"])
    return {f"learner.{field}": getattr(preset, field) for fields in FAULTS.values() for field in fields}


def fitting_layout(runs: Sequence[FinishedRun]) -> Layout:
    """The first table of the paper with a place for all these runs.

    If a memory differs from CLIMB's, a table of sensitivity comes first.
    """
    fitting = [layout for layout in LAYOUTS.values() if not place(layout, runs)[1]]
    if not fitting:
        raise InputError(
            "no table of the paper has a place for all of these runs; leave some out, or name one by --layout: "
            + ", ".join(LAYOUTS)
        )
    varied = not all(_has(run, CLIMB_CHOICES) for run in runs)
    return next((layout for layout in fitting if varied and any(row.group for row in layout.rows)), fitting[0])


def own_layout(runs: Sequence[FinishedRun]) -> tuple[Layout, list[PlacedRun]]:
    """A layout for these runs, and their places.

    Rows are methods, with the settings that differ between runs or from the recipe. Columns are task counts.
    """
    datasets = sorted({run.result["dataset"] for run in runs})
    bases = _base_names(runs)
    rows: dict[str, RowSpec] = {}
    columns: dict[str, int] = {}  # heading -> number of tasks
    placed, kinds = [], set()
    for run, base, where in zip(runs, bases, _row_settings(runs, bases), strict=True):
        label = ", ".join([base, *(f"{key.removeprefix('learner.')} = {value}" for key, value in where.items())])
        rows[label] = method_row(run.result["method"], label=label, where=where)
        kind = named_settings(run.config).get("stream.kind")
        kinds.add(kind)
        column = f"{run.result['tasks']} {'' if kind in ('regular', None) else kind + ' '}tasks"
        column += _stream_options(run, runs)
        column = f"{run.result['dataset']}, {column}" if len(datasets) > 1 else column
        columns[column] = run.result["tasks"]
        placed.append(run.at(label, column))
    order = ("bound", "method", "indicative")
    layout = Layout(
        name="runs",
        title="Runs on " + ", ".join(datasets),
        rows=tuple(sorted(rows.values(), key=lambda row: (order.index(row.kind), row.label))),
        columns=tuple(sorted(columns, key=lambda column: (columns[column], column))),
        metrics=(*USUAL_METRICS, *(PER_IMAGE if kinds != {"regular"} else ())),
    )
    return layout, placed


def _stream_options(run: FinishedRun, runs: Sequence[FinishedRun]) -> str:
    """The options of a run's scenario in which the runs of its kind differ: ", domains photo,sketch"."""
    kind = run.config["stream"]["kind"]
    options = [other.config["stream"].get("options", {}) for other in runs if other.config["stream"]["kind"] == kind]
    differing = {name for own in options for name in own if len({str(other.get(name)) for other in options}) > 1}
    own = run.config["stream"].get("options", {})
    return "".join(f", {name} {own[name]}" for name in sorted(differing - {"order"}) if own.get(name) is not None)


def _base_names(runs: Sequence[FinishedRun]) -> list[str]:
    """Each run's method, with its preset if presets vary, and with its objective unless all have SimCLR.

    A method that ignores the configured objective is not named after it.
    """
    objectives = [run.config["learner"]["objective"] if takes_objective(run.result["method"]) else "" for run in runs]
    presets = [run.config["learner"]["preset"] for run in runs]
    say_objective, say_preset = {*objectives} - {"", LearnerConfig.objective}, len({*presets}) > 1
    names = []
    for run, objective, preset in zip(runs, objectives, presets, strict=True):
        words = [word for word, varies in ((objective, say_objective), (preset, say_preset)) if word and varies]
        names.append(f"{run.result['method']} ({', '.join(words)})" if words else str(run.result["method"]))
    return names


def _row_settings(runs: Sequence[FinishedRun], bases: Sequence[str]) -> list[Settings]:
    """The settings in a row's name: those in which runs of one base name differ from each other or from the recipe."""
    # The evaluated network instead of the requested one: "both" has the numbers of the first network alone.
    settings = [{**named_settings(run.config), "evaluation.network": run.result.get("evaluated")} for run in runs]
    keys: dict[str, list[str]] = {}
    for base in {*bases}:
        group = [(run, own) for run, own, name in zip(runs, settings, bases, strict=True) if name == base]
        unlike = {key for run, _ in group for key in recipe_differences(run.config)}
        varying = {
            key
            for key in {key for _, own in group for key in own}
            if not key.startswith(NOT_NAMING) and len({str(own.get(key)) for _, own in group}) > 1
        }
        keys[base] = sorted(unlike | varying)
    return [{key: own.get(key) for key in keys[base]} for base, own in zip(bases, settings, strict=True)]


def _has(run: FinishedRun, settings: Settings) -> bool:
    named = named_settings(run.config)
    return all(named.get(key) == value for key, value in settings.items())
