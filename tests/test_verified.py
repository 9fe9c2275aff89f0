"""The summary that ships with the package says what the published results say."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from climb.methods import METHODS
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


def test_what_was_measured_is_of_methods_that_exist() -> None:
    assert {found.method for found in verified()} <= set(METHODS)
    assert any(found.method == "climb" and found.seeds >= 3 for found in verified())
