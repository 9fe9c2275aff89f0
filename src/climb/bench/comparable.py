"""Which runs may stand in one table: same budget, dataset, probe, network evaluated and preset."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from climb.bench.recipe import flattened, named_settings, views_of

Aspect = Literal["cbp", "capacity", "memory", "dataset", "stream", "probe", "evaluated", "preset", "backbone"]

CBP_TOLERANCE = 0.005
"""Methods start replaying at slightly different mini-batches: what counts as one budget of backward passes."""


HELD_ELSEWHERE = (
    *("seed", "recipe", "data", "stream", "evaluation"),
    *("learner.image_size", "learner.backbone", "learner.memory.capacity"),
)
"""Settings in which the runs of one cell may differ, or that are a reason of their own where they do."""


PAPERS: dict[str, object] = {
    "learner.backbone": "resnet18",
    "learner.stream_batch": 10,
    "learner.replay_batch": 128,
    "learner.passes": 3,
    "learner.memory.capacity": 2500,
    "evaluation.epochs": 100,
}
"""What stands behind every number of the paper, but for its table of capacities."""


PAPERS_RESULTS = {"preset": "paper", "evaluated": "student"}
"""The same, of what a result says."""


RELEASED_PRESET = "reference"
"""The preset that is the released code's behaviour."""


class FinishedRun(Protocol):
    """What is read of a run."""

    @property
    def row(self) -> str:
        """Runs are averaged within a row and a column."""

    @property
    def column(self) -> str:
        """Runs are held to one budget within a column."""

    @property
    def result(self) -> Mapping[str, Any]:
        """Its `result.json`."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Its configuration."""


Read = Callable[[FinishedRun], object]


def differences(
    compared: Sequence[FinishedRun], *, others: Iterable[FinishedRun] = (), allowed: Collection[Aspect] = ()
) -> tuple[list[str], list[str]]:
    """Reasons not to compare these runs, and remarks on what differs without forbidding it.

    Args:
        compared: the runs that are held against each other.
        others: all runs of the table, bounds and indicative rows too: they must share dataset, preset, probe and
            backbone, not the budget.
        allowed: aspects that differ on purpose.
    """
    runs = [*others] or [*compared]
    reasons = []
    for words, read, concerned in _held(compared, runs, allowed):
        found = _values(concerned, read)
        if len(found) > 1:
            reasons.append(f"different {words}: {', '.join(found)}")
    if "preset" in allowed:  # for the released code alone; two others would become two seeds of one row
        found = _values([run for run in runs if _preset(run) != RELEASED_PRESET], _preset)
        reasons += [f"different presets: {', '.join(found)}"] if len(found) > 1 else []
    if "stream" not in allowed:
        reasons += _streams(compared)
    unbounded: list[str] = []
    if "memory" not in allowed and any(run.result.get("memory_bounded") is not False for run in compared):
        unbounded = _unbounded(compared)  # where nobody has a bound, it is nobody's advantage
        reasons += unbounded
    if "cbp" not in allowed:
        reasons += _budgets(compared)
    reasons += _settings(runs)
    apart = [run for run in runs if not any(run is other for other in compared)]
    remarks = _unbounded(apart if unbounded else runs)
    remarks += _outside(compared, apart)
    remarks += [] if "capacity" in allowed else _bytes(runs)
    told = _values([run for run in runs if run.result.get("needs_boundaries")], _method)
    remarks += [f"told where tasks end: {', '.join(told)}"] if told else []
    streams = [found for found in _values(runs, _given_stream) if not any(found in reason for reason in reasons)]
    remarks += [f"streams with settings of their own: {', '.join(streams)}"] if streams else []
    views = _values(runs, _other_views)
    remarks += [f"trained on other views than the objective's: {', '.join(views)}"] if views else []
    remarks += [
        f"{words} differ: {', '.join(found)}"
        for words, read in (
            *([("presets", _preset)] if "preset" in allowed else []),
            *([("networks evaluated", _evaluated)] if "evaluated" in allowed else []),
            ("devices", _device),
            ("engines", _engine),
            ("precisions", _precision),
            ("numbers of processes", _processes),
            ("versions of torch", _torch),
            ("versions of climb", _climb),
        )
        if len(found := _values(runs, read)) > 1
    ]
    commits = _values(runs, _commit)
    commits += ["unknown"] if commits and any(_commit(run) is None for run in runs) else []
    remarks += [f"code of climb differs: {', '.join(commits)}"] if len(commits) > 1 else []
    edited = [found for found in commits if found.endswith("+changes")]
    remarks += [f"code of climb with changes that no commit holds: {', '.join(edited)}"] if edited else []
    return reasons, remarks


def unlike_most(
    compared: Sequence[FinishedRun], runs: Sequence[FinishedRun], *, allowed: Collection[Aspect] = ()
) -> list[str]:
    """The runs to leave out so that the rest can be compared: those without the value that more than half have."""
    found: dict[str, None] = {}
    for _, read, concerned in _held(compared, runs, allowed):
        values = [(run, str(value)) for run in concerned if (value := read(run)) is not None]
        for usual, count in Counter(value for _, value in values).most_common(1):
            odd = [run for run, value in values if value != usual] if 2 * count > len(values) else []
            found.update(dict.fromkeys(f"{run.row}, {run.column}, seed {run.result.get('seed')}" for run in odd))
    return list(found)


def _held(
    compared: Sequence[FinishedRun], runs: Sequence[FinishedRun], allowed: Collection[Aspect]
) -> list[tuple[str, Read, Sequence[FinishedRun]]]:
    """In what runs must be alike, how that is read, and which runs it is asked of."""
    aspects: tuple[tuple[Aspect, str, Read, Sequence[FinishedRun]], ...] = (
        ("dataset", "datasets", _dataset, runs),
        ("preset", "presets", _preset, runs),
        ("evaluated", "networks evaluated", _evaluated, compared),
        ("probe", "probes", _probe, runs),
        ("backbone", "backbones", _backbone, runs),
        ("capacity", "memory capacities", _capacity, compared),
    )
    return [(words, read, concerned) for aspect, words, read, concerned in aspects if aspect not in allowed]


def shared(runs: Sequence[FinishedRun]) -> list[str]:
    """What all runs of a table have in common and none of its rows or columns says."""
    said = [
        words.format(*found)
        for words, read in (
            ("{}", _dataset),
            ("{}", _backbone),
            ("preset {}", _preset),
            ("{} evaluated", _evaluated),
        )
        if len(found := _values(runs, read)) == 1
    ]
    notes = [f"all runs: {', '.join(said)}"] if said else []
    if any(_rehearsed(run) for run in runs):
        notes.append("a rehearsal at tiny scale: numbers of a few synthetic images, which mean nothing")
    return notes


def unlike_the_paper(runs: Iterable[FinishedRun], *, allowed: Collection[Aspect] = ()) -> list[str]:
    """In what runs beside the paper's numbers had another setting than its: a difference is then not the method's."""
    expected = {key: value for key, value in PAPERS.items() if "capacity" not in allowed or "capacity" not in key}
    found: dict[str, set[str]] = {}
    for run in runs:
        given = flattened(run.config)
        for key, value in expected.items():
            if given.get(key, value) != value and (key != "learner.memory.capacity" or _capacity(run) is not None):
                found.setdefault(key, set()).add(str(given[key]))
        for key, value in PAPERS_RESULTS.items():
            if run.result.get(key, value) != value:
                found.setdefault(key, set()).add(str(run.result[key]))
    expected.update(PAPERS_RESULTS)
    said = [f"{key.rpartition('.')[2]} {', '.join(sorted(v))} (there {expected[key]})" for key, v in found.items()]
    return [f"not the paper's setting: {'; '.join(said)}"] if said else []


def _streams(runs: Sequence[FinishedRun]) -> list[str]:
    """Columns whose streams differ in kind or settings, or in the saved scenario of one seed: each may have its own."""
    reasons = []
    for column in dict.fromkeys(run.column for run in runs):
        here = [run for run in runs if run.column == column]
        seeds = dict.fromkeys(run.result.get("seed") for run in here)
        found = [_values([run for run in here if run.result.get("seed") == seed], _stream) for seed in seeds]
        found.append(_values(here, _kind_of_stream))
        reasons += [f"different streams in {column}: {', '.join(some)}" for some in found if len(some) > 1][:1]
    return reasons


def _budgets(runs: Sequence[FinishedRun]) -> list[str]:
    """Backward passes beyond the tolerance, column by column: columns may have streams of their own length."""
    reasons = []
    for column in dict.fromkeys(run.column for run in runs):
        spent = {run.result["cbp"]: run.row for run in runs if run.column == column and "cbp" in run.result}
        if spent and max(spent) - min(spent) > CBP_TOLERANCE * max(spent):
            low, high = min(spent), max(spent)
            reasons.append(
                f"different budgets of backward passes in {column}: {low:,} ({spent[low]}) and {high:,} "
                f"({spent[high]}), {(high - low) / high:.1%} apart"
            )
    return reasons


def _outside(compared: Sequence[FinishedRun], apart: Sequence[FinishedRun]) -> list[str]:
    """What rows that are held to no budget spent, where it is not the budget of the others."""
    remarks = []
    for column in dict.fromkeys(run.column for run in apart):
        spent = [run.result["cbp"] for run in compared if run.column == column and "cbp" in run.result]
        if not spent:
            continue
        least, most = (1 - CBP_TOLERANCE) * min(spent), max(spent) / (1 - CBP_TOLERANCE)
        beyond = {
            f"{run.row} {run.result['cbp']:,}"
            for run in apart
            if run.column == column and "cbp" in run.result and not least <= run.result["cbp"] <= most
        }
        if beyond:
            remarks.append(f"backward passes outside the budget in {column}: {', '.join(sorted(beyond))}")
    return remarks


def _unbounded(runs: Sequence[FinishedRun]) -> list[str]:
    found = sorted({run.row for run in runs if run.result.get("memory_bounded") is False})
    return [f"a memory without bound: {', '.join(found)}"] if found else []


def _bytes(runs: Sequence[FinishedRun]) -> list[str]:
    """What memories take, where it is not the same: the bound is one of images, and some keep embeddings, too."""
    taken: dict[str, list[int]] = {}
    for run in runs:
        if run.result.get("memory_bytes"):
            taken.setdefault(run.row, []).append(run.result["memory_bytes"])
    having: dict[str, list[str]] = {}
    for row, found in sorted(taken.items(), key=lambda item: max(item[1])):
        megabytes = max(found) / 1e6
        having.setdefault(f"{megabytes:.0f} MB" if megabytes >= 10 else f"{megabytes:#.2g} MB", []).append(row)
    said = "; ".join(f"{size} ({', '.join(rows)})" for size, rows in having.items())
    return [f"memories take, with embeddings, centroids and similarities: {said}"] if len(having) > 1 else []


def _settings(runs: Sequence[FinishedRun]) -> list[str]:
    """Cells whose seeds were not trained alike: their mean would be one of different methods."""
    cells: dict[tuple[str, str, object], list[dict[str, Any]]] = {}
    for run in runs:  # other presets are a reason of their own
        cells.setdefault((run.row, run.column, _preset(run)), []).append(named_settings(run.config))
    reasons = []
    for (row, column, _), configs in cells.items():
        keys = sorted({key for config in configs for key in config if not key.startswith(HELD_ELSEWHERE)})
        varied = {key: sorted({str(config.get(key)) for config in configs}) for key in keys}
        said = [f"{key.removeprefix('learner.')} = {' and '.join(v)}" for key, v in varied.items() if len(v) > 1]
        if said:
            reasons.append(f"different settings in {row}, {column}: {', '.join(said)}")
    return reasons


def _values(runs: Iterable[FinishedRun], read: Read) -> list[str]:
    return sorted({str(value) for run in runs if (value := read(run)) is not None})


def _at(data: Mapping[str, Any], *keys: str) -> Any:
    found: Any = data
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _dataset(run: FinishedRun) -> object:
    """Name, image size, what the loader was given, and which images of one's own it found: all change the task."""
    name = run.result.get("dataset")
    if name is None:
        return None
    size, options = _at(run.config, "learner", "image_size"), _at(run.config, "data", "options")
    return " ".join(
        [
            str(name),
            *([f"{size} px"] if size else []),
            *(f"{key}={value}" for key, value in sorted((options or {}).items())),
            *([f"({found})"] if (found := run.result.get("data_fingerprint")) else []),
        ]
    )


def _stream(run: FinishedRun) -> object:
    """In which order images came. Which classes made which task, the seed decides, or a saved scenario."""
    kind, options = _at(run.config, "stream", "kind"), _at(run.config, "stream", "options")
    manifest = _at(run.config, "stream", "manifest")
    if manifest is not None:
        return f"a saved scenario ({hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:8]})"
    return (
        None
        if kind is None
        else " ".join([kind, *(f"{key}={value}" for key, value in sorted((options or {}).items()))])
    )


def _kind_of_stream(run: FinishedRun) -> object:
    """The same, whichever scenario was saved."""
    manifest = _at(run.config, "stream", "manifest")
    return _stream(run) if manifest is None else f"a saved {manifest.get('kind')} scenario"


def _given_stream(run: FinishedRun) -> object:
    """A stream that is not just one of its kind: no row or column says so."""
    given = _at(run.config, "stream", "options") or _at(run.config, "stream", "manifest") is not None
    return _stream(run) if given else None


def _method(run: FinishedRun) -> object:
    return run.result.get("method")


def _preset(run: FinishedRun) -> object:
    return run.result.get("preset")


def _evaluated(run: FinishedRun) -> object:
    return run.result.get("evaluated")


def _rehearsed(run: FinishedRun) -> bool:
    """Whether a grid shrank the run (`climb.bench.grids.configure`), by the name it gave it."""
    return re.fullmatch(r"tiny-\d+", str(run.config.get("recipe"))) is not None


def _other_views(run: FinishedRun) -> object:
    """A method with its views, where they are not those that belong to its objective."""
    views = views_of(run.config)
    return None if views == views_of(run.config, own=True) else f"{_method(run)} ({views})"


def _probe(run: FinishedRun) -> object:
    epochs = _at(run.config, "evaluation", "epochs")
    return None if epochs is None else f"linear, {epochs} epochs"


def _backbone(run: FinishedRun) -> object:
    return _at(run.config, "learner", "backbone")


def _capacity(run: FinishedRun) -> object:
    """None for a method without a memory: it stores less than it might, which is no advantage."""
    return _at(run.config, "learner", "memory", "capacity") if run.result.get("memory_bytes") else None


def _device(run: FinishedRun) -> object:
    return _at(run.result, "versions", "device_name")


def _engine(run: FinishedRun) -> object:
    return run.result.get("engine")


def _precision(run: FinishedRun) -> object:
    return run.result.get("precision")


def _processes(run: FinishedRun) -> object:
    return run.result.get("processes")


def _torch(run: FinishedRun) -> object:
    return _at(run.result, "versions", "torch")


def _climb(run: FinishedRun) -> object:
    return _at(run.result, "versions", "climb")


def _commit(run: FinishedRun) -> object:
    return _at(run.result, "versions", "commit")
