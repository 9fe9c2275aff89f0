"""Which runs may stand in one table: same budget, dataset, probe, evaluated network and preset."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from climb.bench.collect import PlacedRun, flattened, lookup, named_settings, objective_views, views_of
from climb.bench.layouts import Aspect

CBP_TOLERANCE = 0.005
"""Relative difference of backward passes within one budget: methods start to replay at different mini-batches."""
CHECKED_ELSEWHERE = (
    *("seed", "recipe", "data", "stream", "evaluation"),
    *("learner.image_size", "learner.backbone", "learner.weights", "learner.memory.capacity"),
)
"""Settings that may differ within a cell, or that have a check of their own."""
RELEASED_PRESET = "reference"
"""The preset that behaves as the released code."""

REQUIRED = ("datasets", "presets", "networks evaluated", "probes", "backbones", "memory capacities")
"""Aspects that must be equal."""
FREE_IN_BOUNDS = ("networks evaluated", "memory capacities")
"""Those of them that may differ in bounds and indicative rows."""
REMARKED = (
    *("presets", "networks evaluated", "devices", "engines", "precisions", "numbers of processes"),
    *("versions of torch", "versions of climb"),
)
"""Aspects whose differences are noted where they do not forbid a comparison."""
PAPER: dict[str, object] = {"learner.backbone": "resnet18", "learner.stream_batch": 10, "learner.replay_batch": 128}
PAPER |= {"learner.passes": 3, "learner.memory.capacity": 2500, "evaluation.epochs": 100}
PAPER |= {"preset": "paper", "evaluated": "student"}
"""The paper's setting in all its tables; that of capacities varies the capacity."""


def _aspects(run: PlacedRun) -> dict[str, Any]:
    """What may differ between runs, by name; None if it is unknown or does not apply."""
    result, config = run.result, run.config
    dataset, fingerprint, method = (result.get(name) for name in ("dataset", "data_fingerprint", "method"))
    side, epochs = lookup(config, "learner.image_size"), lookup(config, "evaluation.epochs")
    views, own_views = views_of(config), objective_views(config)
    manifest, kind = lookup(config, "stream.manifest"), lookup(config, "stream.kind")
    loading, streaming = (
        [f"{key}={value}" for key, value in sorted((lookup(config, name) or {}).items())]
        for name in ("data.options", "stream.options")
    )
    # Each of these changes the task.
    released = lookup(config, "data.normalisation") == "released"
    backbone, digest = lookup(config, "learner.backbone"), lookup(config, "learner.weights_sha256")
    extras = [released and "with the released constants", fingerprint and f"({fingerprint})"]
    images = [dataset, side and f"{side} px", *loading, *extras]
    # The classes of each task follow from the seed or from a saved scenario.
    stream = kind = kind and " ".join([kind, *streaming])
    if manifest is not None:
        content = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:8]
        stream, kind = f"a saved scenario ({content})", f"a saved {manifest.get('kind')} scenario"
    return {
        "methods": method,
        "datasets": dataset and " ".join(filter(None, images)),
        "streams": stream,
        "kinds of stream": kind,
        "custom streams": stream if streaming or manifest is not None else None,
        "custom views": None if views == own_views else f"{method} ({views})",
        "presets": result.get("preset"),
        "networks evaluated": result.get("evaluated"),
        "probes": epochs and f"linear, {epochs} epochs",
        "backbones": f"{backbone} from weights {digest[:8]}" if digest else backbone,
        # To store less, or nothing, is no advantage.
        "memory capacities": lookup(config, "learner.memory.capacity") if result.get("memory_bytes") else None,
        "devices": lookup(result, "versions.device_name"),
        "engines": result.get("engine"),
        "precisions": result.get("precision"),
        "numbers of processes": result.get("processes"),
        "versions of torch": lookup(result, "versions.torch"),
        "versions of climb": lookup(result, "versions.climb"),
        "commits": lookup(result, "versions.commit"),
    }


def differences(
    compared: Sequence[PlacedRun], *, others: Iterable[PlacedRun] = (), allowed: Collection[Aspect] = ()
) -> tuple[list[str], list[str]]:
    """Reasons not to compare these runs, and remarks on differences that do not forbid it.

    Args:
        compared: the runs that are compared with each other.
        others: all runs of the table, including bounds and indicative rows, which have no budget to keep.
        allowed: aspects that differ on purpose.
    """
    runs = [*others] or [*compared]
    apart = [run for run in runs if not any(run is other for other in compared)]
    reasons = []
    for name, concerned in _required(compared, runs, allowed):
        reasons += _note(f"different {name}", _values(concerned, name), least=2)
    if "presets" in allowed:  # for the released code alone; two other presets would pass for two seeds of one row
        others_than_released = [preset for preset in _values(runs, "presets") if preset != RELEASED_PRESET]
        reasons += _note("different presets", others_than_released, least=2)
    reasons += _streams(compared)
    # If no memory is bounded, none has an advantage.
    bounded = any(run.result.get("memory_bounded") is not False for run in compared)
    unbounded = _unbounded(compared) if bounded and "memory bounds" not in allowed else []
    reasons += unbounded + _budgets(compared) + _settings(runs)

    remarks = _unbounded(apart if unbounded else runs) + _outside_budget(compared, apart)
    remarks += [] if "memory capacities" in allowed else _memory_bytes(runs)
    boundaries = [run for run in runs if run.result.get("needs_boundaries")]
    remarks += _note("told where tasks end", _values(boundaries, "methods"))
    streams = [stream for stream in _values(runs, "custom streams") if not any(stream in reason for reason in reasons)]
    remarks += _note("streams with settings of their own", streams)
    remarks += _note("trained on other views than the objective's", _values(runs, "custom views"))
    for name in REMARKED:
        if name in allowed or name not in REQUIRED:
            remarks += _note(f"{name} differ", _values(runs, name), least=2)
    commits = _values(runs, "commits")
    commits += ["unknown"] if commits and any(lookup(run.result, "versions.commit") is None for run in runs) else []
    remarks += _note("code of climb differs", commits, least=2)
    edited = [commit for commit in commits if commit.endswith("+changes")]
    return reasons, remarks + _note("code of climb with changes that no commit holds", edited)


def outliers(
    compared: Sequence[PlacedRun], runs: Sequence[PlacedRun], *, allowed: Collection[Aspect] = ()
) -> list[str]:
    """The runs that lack a value that more than half of the runs have. Without them, the rest can be compared."""
    odd: dict[str, None] = {}
    for name, concerned in _required(compared, runs, allowed):
        values = [(run, str(value)) for run in concerned if (value := _aspects(run)[name]) is not None]
        for usual, count in Counter(value for _, value in values).most_common(1):
            unlike = [run for run, value in values if value != usual] if 2 * count > len(values) else []
            odd |= dict.fromkeys(f"{run.row}, {run.column}, seed {run.result.get('seed')}" for run in unlike)
    return list(odd)


def common_settings(runs: Sequence[PlacedRun]) -> list[str]:
    """What all runs of a table have in common and no row or column names."""
    shown = {"datasets": "{}", "backbones": "{}", "presets": "preset {}", "networks evaluated": "{} evaluated"}
    values = [(text, _values(runs, name)) for name, text in shown.items()]
    notes = _note("all runs", [text.format(*value) for text, value in values if len(value) == 1])
    # `climb.bench.grids.configure` names the recipes of rehearsals so.
    if any(re.fullmatch(r"tiny-\d+", str(run.config.get("recipe"))) for run in runs):
        notes.append("a rehearsal at tiny scale: numbers of a few synthetic images, which mean nothing")
    return notes


def paper_differences(runs: Iterable[PlacedRun], *, allowed: Collection[Aspect] = ()) -> list[str]:
    """The settings in which runs differ from the paper's, whose numbers stand beside theirs."""
    other: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        capacity = None if "memory capacities" in allowed else _aspects(run)["memory capacities"]
        actual = {**flattened(run.config), **run.result, "learner.memory.capacity": capacity}
        for name, expected in PAPER.items():
            if actual.get(name) not in (None, expected):
                other[name].add(str(actual[name]))
    texts = [f"{name.rpartition('.')[2]} {', '.join(sorted(v))} (there {PAPER[name]})" for name, v in other.items()]
    return [f"not the paper's setting: {'; '.join(texts)}"] if texts else []


def _required(
    compared: Sequence[PlacedRun], runs: Sequence[PlacedRun], allowed: Collection[Aspect]
) -> Iterator[tuple[str, Sequence[PlacedRun]]]:
    """The aspects that must be equal, and the runs concerned."""
    for name in REQUIRED:
        if name not in allowed:
            yield name, compared if name in FREE_IN_BOUNDS else runs


def _streams(runs: Sequence[PlacedRun]) -> list[str]:
    """Columns whose streams differ in kind or options, or whose runs of one seed have different saved scenarios."""
    reasons = []
    for column, here in _grouped(runs, lambda run: run.column).items():
        by_seed = _grouped(here, lambda run: run.result.get("seed")).values()
        streams = [*(_values(same, "streams") for same in by_seed), _values(here, "kinds of stream")]
        differing = [some for some in streams if len(some) > 1]
        reasons += [f"different streams in {column}: {', '.join(some)}" for some in differing[:1]]
    return reasons


def _budgets(runs: Sequence[PlacedRun]) -> list[str]:
    """Columns whose backward passes differ by more than the tolerance. Columns may have streams of other lengths."""
    reasons = []
    for column, here in _grouped(runs, lambda run: run.column).items():
        spent = {run.result["cbp"]: run.row for run in here if "cbp" in run.result}
        low, high = min(spent, default=0), max(spent, default=0)
        if high - low > CBP_TOLERANCE * high:
            reasons.append(
                f"different budgets of backward passes in {column}: {low:,} ({spent[low]}) and {high:,} "
                f"({spent[high]}), {(high - low) / high:.1%} apart"
            )
    return reasons


def _outside_budget(compared: Sequence[PlacedRun], apart: Sequence[PlacedRun]) -> list[str]:
    """Rows without a budget to keep that spent another one than the compared rows of their column."""
    remarks = []
    for column, here in _grouped(apart, lambda run: run.column).items():
        spent = [run.result["cbp"] for run in compared if run.column == column and "cbp" in run.result]
        own = {(run.row, run.result["cbp"]) for run in here if "cbp" in run.result and spent}
        least, most = (1 - CBP_TOLERANCE) * min(spent, default=0), max(spent, default=0) / (1 - CBP_TOLERANCE)
        beyond = sorted(f"{row} {cbp:,}" for row, cbp in own if not least <= cbp <= most)
        remarks += _note(f"backward passes outside the budget in {column}", beyond)
    return remarks


def _unbounded(runs: Sequence[PlacedRun]) -> list[str]:
    return _note("a memory without bound", sorted({r.row for r in runs if r.result.get("memory_bounded") is False}))


def _memory_bytes(runs: Sequence[PlacedRun]) -> list[str]:
    """The sizes of the memories, if they differ. The bound counts images, but some memories store embeddings, too."""
    by_row = _grouped([run for run in runs if run.result.get("memory_bytes")], lambda run: run.row)
    largest = {row: max(run.result["memory_bytes"] for run in own) for row, own in by_row.items()}
    rows: dict[str, list[str]] = defaultdict(list)
    for row, size in sorted(largest.items(), key=lambda item: item[1]):
        rows[f"{size / 1e6:.0f} MB" if size >= 1e7 else f"{size / 1e6:#.2g} MB"].append(row)
    texts = "; ".join(f"{size} ({', '.join(names)})" for size, names in rows.items())
    return [f"memories take, with embeddings, centroids and similarities: {texts}"] if len(rows) > 1 else []


def _settings(runs: Sequence[PlacedRun]) -> list[str]:
    """Cells whose seeds were trained differently. Presets are compared elsewhere."""
    reasons = []
    for (row, column, _), cell in _grouped(runs, lambda run: (run.row, run.column, run.result.get("preset"))).items():
        configs = [named_settings(run.config) for run in cell]
        keys = sorted({key for config in configs for key in config if not key.startswith(CHECKED_ELSEWHERE)})
        varied = {key: sorted({str(config.get(key)) for config in configs}) for key in keys}
        texts = [f"{key.removeprefix('learner.')} = {' and '.join(v)}" for key, v in varied.items() if len(v) > 1]
        reasons += _note(f"different settings in {row}, {column}", texts)
    return reasons


def _grouped(runs: Iterable[PlacedRun], key: Callable[[PlacedRun], Any]) -> dict[Any, list[PlacedRun]]:
    groups: dict[Any, list[PlacedRun]] = defaultdict(list)
    for run in runs:
        groups[key(run)].append(run)
    return groups


def _values(runs: Iterable[PlacedRun], aspect: str) -> list[str]:
    return sorted({str(value) for run in runs if (value := _aspects(run)[aspect]) is not None})


def _note(words: str, values: Sequence[str], *, least: int = 1) -> list[str]:
    """A note that lists the values, unless there are fewer than ``least``."""
    return [f"{words}: {', '.join(values)}"] if len(values) >= least else []
