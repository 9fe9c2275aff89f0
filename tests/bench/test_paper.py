"""The paper's printed values as data."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from climb.bench.layouts import LAYOUTS
from climb.bench.paper import all_printed, printed_value, recompute_marks
from climb.bench.statistics import Comparison


def test_how_many_values_each_table_prints() -> None:
    counts = Counter(value.table for value in all_printed())
    assert counts == {
        "table-regular": 2 + 3 * 7 * 4,  # the bound, then 7 rows at 3 task counts
        "table-irregular": 2 * 6 * 4,
        "table-ablation": 7 * 2,
        "table-sensitivity-architecture": (6 + 5 + 5 + 4) * 2,
        "table-sensitivity-update": (5 + 4 + 5) * 2,
        "table-pruning": 4 * 2,
        "table-diversity": 6 * 4,
        "table-simsiam": 2 + 2 * 4 * 4,
        "table-forgetting": 3 * 6 * 2,
    }
    assert {*LAYOUTS} - {*counts} == {"table-faults"}


@pytest.mark.parametrize(
    ("place", "mean", "std", "bold"),
    [
        (("table-regular", "cifar100", "CLIMB", "20 tasks", "CA"), 41.33, 0.72, True),
        (("table-regular", "imagenet100", "SCALE", "100 tasks", "FA"), 28.08, 1.86, False),
        (("table-regular", "cifar100", "PCMC", "100 tasks", "CA"), 36.72, 1.64, False),
        (("table-irregular", "cifar100", "CLIMB", "20 tasks", "CA"), 39.00, 1.58, True),
        (("table-ablation", "imagenet100", "SSL + reservoir + alignment + EMA", "20 tasks", "FA"), 48.64, 2.00, False),
        (("table-sensitivity-architecture", "imagenet100", "N = 5000", "20 tasks", "FA"), 53.18, 1.35, True),
        (("table-sensitivity-update", "imagenet100", "alpha_stm = 0.5", "20 tasks", "CA"), 46.07, 1.68, True),
        (("table-pruning", "imagenet100", "Selective", "50 tasks", "CA"), 45.50, 1.08, True),
        (("table-diversity", "imagenet100", "MinRed", "20 tasks", "inter/intra ratio"), 2.212, 0.017, False),
        (("table-simsiam", "imagenet100", "CLA-R", "50 tasks", "FA"), 39.82, 1.94, True),
        (("table-forgetting", "cifar100", "MinRed", "50 tasks", "forgetting"), -5.16, 1.01, True),
    ],
)
def test_values_read_off_the_paper(place: tuple[str, str, str, str, str], mean: float, std: float, bold: bool) -> None:
    found = printed_value(*place)
    assert found is not None
    assert (found.mean, found.std, found.bold) == (mean, std, bold)


def test_all_values_are_those_that_were_read_off_the_paper() -> None:
    """All of them, marks too, were compared in order with the source of the paper's tables. Sums alone would not
    notice two that have changed places."""
    found = "\n".join(
        f"{value.table} {value.dataset} {value.column} {value.row} {value.metric} {value.n} {value.mean} "
        f"{value.std} {value.bold}"
        for value in all_printed()
    )
    assert hashlib.sha256(found.encode()).hexdigest()[:16] == "d4ee69fbffe105ae"


def test_the_bound_is_printed_once_for_all_columns() -> None:
    found = [printed_value("table-regular", "cifar100", "i.i.d.", f"{tasks} tasks", "FA") for tasks in (20, 50, 100)]
    assert [value.mean for value in found if value] == [50.45] * 3
    assert printed_value("table-regular", "cifar100", "i.i.d.", "20 tasks", "CA") is None


def test_every_printed_value_has_a_place_in_its_layout() -> None:
    for value in all_printed():
        layout = LAYOUTS[value.table]
        assert layout.row(value.row)
        assert value.column in (*layout.columns, "")
        assert value.metric in [metric.label for metric in layout.metrics]


def test_the_rule_reproduces_all_but_four_bold_marks() -> None:
    marks = recompute_marks()
    odd = {
        (mark.printed.table, mark.printed.row, mark.printed.metric): mark.verdict.p for mark in marks if not mark.agrees
    }
    assert len(marks) == 270
    assert odd == {
        ("table-regular", "CLA-E", "CA"): pytest.approx(0.0387, abs=1e-4),
        ("table-regular", "CLA-E", "FA"): pytest.approx(0.0323, abs=1e-4),
        ("table-ablation", "SSL + FIFO + alignment + EMA", "CA"): pytest.approx(0.0288, abs=1e-4),
        ("table-sensitivity-update", "alpha_stm = 0.01", "FA"): pytest.approx(0.0486, abs=1e-4),
    }


def test_a_two_sided_rule_explains_the_marks_less_well() -> None:
    assert sum(not mark.agrees for mark in recompute_marks(Comparison(sides=2))) == 13


def test_welchs_test_explains_one_more_mark_as_the_documentation_says() -> None:
    assert sum(not mark.agrees for mark in recompute_marks(Comparison(kind="welch"))) == 3
