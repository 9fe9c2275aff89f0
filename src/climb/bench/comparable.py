"""Which runs may stand in one table: same budget, dataset, probe, network evaluated and preset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

Aspect = Literal["cbp", "capacity", "memory", "dataset", "stream", "probe", "evaluated", "preset", "backbone"]

CBP_TOLERANCE = 0.005
"""Methods start replaying at slightly different mini-batches: what counts as one budget of backward passes."""


class FinishedRun(Protocol):
    """What is read of a run."""

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
        others: all runs of the table, bounds and indicative rows too: they must share the dataset, not the budget.
        allowed: aspects that differ on purpose.
    """
    runs = [*others] or [*compared]
    reasons = []
    for aspect, words, read, concerned in (
        ("dataset", "datasets", _dataset, runs),
        ("preset", "presets", _preset, compared),
        ("evaluated", "networks evaluated", _evaluated, compared),
        ("probe", "probes", _probe, compared),
        ("backbone", "backbones", _backbone, compared),
        ("capacity", "memory capacities", _capacity, compared),
    ):
        found = _values(concerned, read)
        if len(found) > 1 and aspect not in allowed:
            reasons.append(f"different {words}: {', '.join(found)}")
    if "stream" not in allowed:
        for column in dict.fromkeys(run.column for run in compared):
            found = _values([run for run in compared if run.column == column], _stream)
            if len(found) > 1:
                reasons.append(f"different streams in {column}: {', '.join(found)}")
    if "memory" not in allowed:
        unbounded = _values([run for run in compared if run.result.get("memory_bounded") is False], _method)
        if unbounded:
            reasons.append(f"a memory without bound: {', '.join(unbounded)}")
    if "cbp" not in allowed:
        reasons += _budgets(compared)
    remarks = [
        f"{words} differ: {', '.join(found)}"
        for words, read in (
            *([("networks evaluated", _evaluated)] if "evaluated" in allowed else []),
            ("devices", _device),
            ("engines", _engine),
            ("precisions", _precision),
            ("versions of torch", _torch),
        )
        if len(found := _values(runs, read)) > 1
    ]
    return reasons, remarks


def _budgets(runs: Sequence[FinishedRun]) -> list[str]:
    """Backward passes beyond the tolerance, column by column: columns may have streams of their own length."""
    reasons = []
    for column in dict.fromkeys(run.column for run in runs):
        spent = {run.result["cbp"]: str(_method(run)) for run in runs if run.column == column and "cbp" in run.result}
        if spent and max(spent) - min(spent) > CBP_TOLERANCE * max(spent):
            low, high = min(spent), max(spent)
            reasons.append(
                f"different budgets of backward passes in {column}: {low:,} ({spent[low]}) and {high:,} "
                f"({spent[high]}), {(high - low) / high:.1%} apart"
            )
    return reasons


def _values(runs: Iterable[FinishedRun], read: Read) -> list[str]:
    return sorted({str(value) for run in runs if (value := read(run)) is not None})


def _at(data: Mapping[str, Any], *keys: str) -> Any:
    found: Any = data
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _dataset(run: FinishedRun) -> object:
    """Name, image size and what the loader was given: all change the task."""
    name = run.result.get("dataset")
    size, options = _at(run.config, "learner", "image_size"), _at(run.config, "data", "options")
    return " ".join(
        [
            str(name),
            *([f"{size} px"] if size else []),
            *(f"{key}={value}" for key, value in sorted((options or {}).items())),
        ]
    )


def _stream(run: FinishedRun) -> object:
    """In which order images came. Which classes made which task, the seed decides, or a saved scenario."""
    kind, options = _at(run.config, "stream", "kind"), _at(run.config, "stream", "options")
    if _at(run.config, "stream", "manifest") is not None:
        return "a saved scenario"
    return (
        None
        if kind is None
        else " ".join([kind, *(f"{key}={value}" for key, value in sorted((options or {}).items()))])
    )


def _method(run: FinishedRun) -> object:
    return run.result.get("method")


def _preset(run: FinishedRun) -> object:
    return run.result.get("preset")


def _evaluated(run: FinishedRun) -> object:
    return run.result.get("evaluated")


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


def _torch(run: FinishedRun) -> object:
    return _at(run.result, "versions", "torch")
