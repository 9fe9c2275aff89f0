"""What this repository has measured of each method on real data: a summary of `results/`, shipped with the package."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import mean
from typing import Any

from climb.bench.collect import find_runs
from climb.bench.recipe import started_from, usual_learner
from climb.config import EvaluationConfig, LearnerConfig, RunConfig, StreamConfig, from_dict
from climb.presets import NETWORK

TABLE = Path(__file__).with_name("verified.csv")


@dataclass(frozen=True, kw_only=True)
class Verified:
    """One method on one stream, under one preset, at one rate."""

    method: str
    preset: str
    dataset: str
    tasks: int
    lr: float
    seeds: int
    final_accuracy: float
    """Percent, mean over the seeds, to two digits."""
    continual_accuracy: float
    """Percent, mean over the seeds, to two digits."""

    def __str__(self) -> str:
        runs = f"{self.seeds} seed" + "s" * (self.seeds > 1)
        return f"{self.dataset}, {self.tasks} tasks, {self.preset}: FA {self.final_accuracy:.2f} ({runs})"


def verified() -> list[Verified]:
    """All that has been measured, in the order of the table.

    >>> {found.dataset for found in verified()}
    {'cifar100'}
    """
    with TABLE.open(encoding="utf-8", newline="") as handle:
        return [
            Verified(**{f.name: _typed(str(f.type), line[f.name]) for f in fields(Verified)})
            for line in csv.DictReader(handle)
        ]


def collect(results: Path) -> list[Verified]:
    """The same from a folder of published results: what the table has to say. Runs with a fault switched on, or on
    another stream, say nothing of the method as it is and are left out; a seed that was run twice counts once."""
    seeds: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for run in find_runs([results]):
        if not _as_it_is(from_dict(RunConfig, run.config)):
            continue
        result = run.result
        key = (result["method"], result["preset"], result["dataset"], result["tasks"], run.config["learner"]["lr"])
        seeds.setdefault(key, {}).setdefault(result["seed"], result)  # the first by path
    groups = {key: list(found.values()) for key, found in seeds.items()}
    return [
        Verified(
            **dict(zip(("method", "preset", "dataset", "tasks", "lr"), key, strict=True)),
            seeds=len(runs),
            final_accuracy=round(mean(run["final_accuracy"] for run in runs), 2),
            continual_accuracy=round(mean(run["continual_accuracy"] for run in runs), 2),
        )
        for key, runs in sorted(groups.items())
    ]


def write(found: list[Verified]) -> None:
    """Replace the table. ``python -c "from climb.verified import *; write(collect(Path('results')))"``."""
    with TABLE.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, [f.name for f in fields(Verified)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(each) for each in found)


def _as_it_is(run: RunConfig) -> bool:
    """Whether a run is of its method under its preset, with the recipe's network, on regular tasks, measured as the
    preset says; the learning rate may be another."""
    learner, measured = run.resolved().learner, run.evaluation
    if measured.epochs != EvaluationConfig.epochs or measured.network not in (NETWORK[learner.preset], "both"):
        return False
    usual = usual_learner(run, started_from(run) or LearnerConfig(image_size=learner.image_size))
    usual = replace(usual, lr=learner.lr)
    return run.stream == StreamConfig(tasks=run.stream.tasks) and learner == usual


def _typed(kind: str, text: str) -> Any:
    return {"int": int, "float": float}.get(kind, str)(text)
