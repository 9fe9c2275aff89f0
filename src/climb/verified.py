"""Measured accuracies of each method: a summary of `results/` that the package includes."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import mean
from typing import Any

from climb.bench.collect import find_runs, started_from, usual_learner
from climb.settings.config import EvaluationConfig, LearnerConfig, RunConfig, StreamConfig, from_dict
from climb.settings.presets import NETWORK

TABLE = Path(__file__).with_name("verified.csv")
KINDS: dict[str, type] = {"str": str, "int": int, "float": float}


@dataclass(frozen=True, kw_only=True)
class Verified:
    """One method on one stream, with one preset and one learning rate."""

    method: str
    preset: str
    dataset: str
    tasks: int
    lr: float
    seeds: int
    final_accuracy: float
    """Percent, mean over seeds, two digits."""
    continual_accuracy: float
    """Percent, mean over seeds, two digits."""

    def __str__(self) -> str:
        runs = f"{self.seeds} seed" + "s" * (self.seeds > 1)
        return f"{self.dataset}, {self.tasks} tasks, {self.preset}: FA {self.final_accuracy:.2f} ({runs})"


def verified() -> list[Verified]:
    """All rows of the table, in its order.

    >>> {row.dataset for row in verified()}
    {'cifar100'}
    """
    with TABLE.open(encoding="utf-8", newline="") as handle:
        return [
            Verified(**{f.name: KINDS[str(f.type)](line[f.name]) for f in fields(Verified)})
            for line in csv.DictReader(handle)
        ]


def collect(results: Path) -> list[Verified]:
    """Compute the rows from a folder of published results.

    Runs with deviating settings, such as faults or other streams, are skipped. Repeated seeds count once.
    """
    seeds: dict[tuple[Any, ...], dict[int, dict[str, Any]]] = {}
    for run in find_runs([results]):
        if not _is_standard(from_dict(RunConfig, run.config)):
            continue
        result = run.result
        key = (result["method"], result["preset"], result["dataset"], result["tasks"], run.config["learner"]["lr"])
        seeds.setdefault(key, {}).setdefault(result["seed"], result)  # the first by path
    groups = {key: list(results.values()) for key, results in seeds.items()}
    return [
        Verified(
            **dict(zip(("method", "preset", "dataset", "tasks", "lr"), key, strict=True)),
            seeds=len(runs),
            final_accuracy=round(mean(run["final_accuracy"] for run in runs), 2),
            continual_accuracy=round(mean(run["continual_accuracy"] for run in runs), 2),
        )
        for key, runs in sorted(groups.items())
    ]


def write(rows: list[Verified]) -> None:
    """Replace the table. ``python -c "from climb.verified import *; write(collect(Path('results')))"``."""
    with TABLE.open("w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, [f.name for f in fields(Verified)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)


def _is_standard(run: RunConfig) -> bool:
    """Whether a run has the settings of its method, preset and recipe, on regular tasks. The learning rate is free."""
    learner, measured = run.resolved().learner, run.evaluation
    if measured.epochs != EvaluationConfig.epochs or measured.network not in (NETWORK[learner.preset], "both"):
        return False
    usual = usual_learner(run, started_from(run) or LearnerConfig(image_size=learner.image_size))
    usual = replace(usual, lr=learner.lr)
    return run.stream == StreamConfig(tasks=run.stream.tasks) and learner == usual
