"""The summary in the package agrees with the published results."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from climb.bench.collect import find_runs
from climb.methods import METHODS, choose_method
from climb.runs.run_file_checks import read_object
from climb.settings.config import LearnerConfig
from climb.settings.presets import apply_preset
from climb.verified import collect, verified

RESULTS = Path(__file__).parents[1] / "results"


def test_the_table_is_what_the_results_give() -> None:
    assert verified() == collect(RESULTS)


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("learner", {"augment_per_batch": True}),
        ("learner", {"alignment_weight": 0.5}),
        ("learner", {"objective": "simsiam"}),
        ("learner", {"ema_decay": 0.99}),
        ("learner", {"backbone": "micro"}),
        ("learner", {"image_size": 64}),
        ("stream", {"kind": "irregular"}),
        ("evaluation", {"network": "teacher"}),
        ("evaluation", {"epochs": 10}),
    ],
)
def test_a_run_that_is_not_the_method_as_it_is_counts_for_nothing(
    section: str, change: dict[str, Any], tmp_path: Path
) -> None:
    """Published beside the others, such as the faults of the release, it must not become another seed of it."""
    shutil.copytree(RESULTS / "cifar100-20-paper", tmp_path / "paper")
    (plain,) = collect(tmp_path)
    path = tmp_path / "paper" / "seed-2" / "config.json"
    written = json.loads(path.read_text())
    written["config"][section].update(change)
    path.write_text(json.dumps(written))
    assert [found.seeds for found in collect(tmp_path)] == [plain.seeds - 1]


def test_a_seed_that_was_run_twice_counts_once(tmp_path: Path) -> None:
    shutil.copytree(RESULTS / "cifar100-20-paper", tmp_path / "paper")
    before = collect(tmp_path)
    again = tmp_path / "wallclock"
    shutil.copytree(RESULTS / "cifar100-20-paper" / "seed-4", again)
    result = read_object(again / "result.json")
    (again / "result.json").write_text(json.dumps({**result, "final_accuracy": 0.0}))
    assert collect(tmp_path) == before


def test_every_published_run_spent_the_papers_budget() -> None:
    """As executed: replay starts when there is something to replay, so that nobody spends more."""
    nominal = 2 * 3 * 45_000 // 10 * 138
    every = [run.result for run in find_runs([RESULTS]) if run.result["dataset"] == "cifar100"]
    results = [result for result in every if not METHODS[result["method"]].custom_engine]  # PCMC's is not bound
    assert len(results) > 40
    spent = {(result["method"], result["cbp"]) for result in results}
    assert not {(name, cbp) for name, cbp in spent if not 0.995 * nominal <= cbp <= nominal}
    assert {name for name, cbp in spent if cbp == nominal} <= {"finetune", "lump", "cla-b", "iid"}  # who need no replay
    steps = {result["method"]: result["gradient_steps"] for result in results}
    assert steps["iid"] == steps["climb"] == steps["minred"] == 13_500
    assert steps["finetune"] == steps["lump"] == 186_300


def test_a_method_starts_from_the_rate_that_validation_chose() -> None:
    """In the search that is published; what has a single rate there was not searched."""
    tried: dict[str, dict[float, float]] = defaultdict(dict)
    for run in find_runs([RESULTS / f"cifar100-20-{name}" for name in ("paper", "methods", "search")]):
        learner, result = run.config["learner"], run.result
        usual = choose_method(LearnerConfig(), result["method"]).views
        if (result["preset"], result["seed"], learner["views"]) == ("paper", 0, usual):
            tried[result["method"]][learner["lr"]] = result["validation_accuracy"]
    best = {name: max(rates, key=lambda rate: rates[rate]) for name, rates in tried.items() if len(rates) > 2}
    assert len(best) >= 11
    preset = apply_preset(LearnerConfig(), "paper")
    assert best == {name: choose_method(preset, name).lr for name in best}


def test_what_was_measured_is_of_methods_that_exist() -> None:
    assert {found.method for found in verified()} <= set(METHODS)
    assert any(found.method == "climb" and found.seeds >= 3 for found in verified())
