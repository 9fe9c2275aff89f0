"""The summary that ships with the package says what the published results say."""

from __future__ import annotations

from pathlib import Path

from climb.methods import METHODS
from climb.verified import collect, verified

RESULTS = Path(__file__).parents[1] / "results"


def test_the_table_is_what_the_results_give() -> None:
    assert verified() == collect(RESULTS)


def test_what_was_measured_is_of_methods_that_exist() -> None:
    assert {found.method for found in verified()} <= set(METHODS)
    assert any(found.method == "climb" and found.seeds >= 3 for found in verified())
