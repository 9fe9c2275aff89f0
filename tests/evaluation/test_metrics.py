from __future__ import annotations

import json

import numpy as np
import pytest

from climb.errors import InputError
from climb.evaluation import (
    by_task,
    continual_accuracy,
    continual_accuracy_all,
    final_accuracy,
    forgetting,
    forward_accuracy,
    summarize,
)

# Three tasks with 10, 20 and 30 test images.
MATRIX = [
    [60.0, 30.0, 12.0],
    [54.0, 66.0, 18.0],
    [48.0, 63.0, 72.0],
]
COUNTS = [10, 20, 30]


def test_final_accuracy_by_hand() -> None:
    assert final_accuracy(MATRIX) == pytest.approx((48 + 63 + 72) / 3)  # 61
    # 480 + 1260 + 2160 = 3900, over 60 images
    assert final_accuracy(MATRIX, COUNTS) == pytest.approx(65.0)


def test_continual_accuracy_by_hand() -> None:
    # Rows up to the diagonal: 60; (54 + 66) / 2 = 60; (48 + 63 + 72) / 3 = 61
    assert continual_accuracy(MATRIX) == pytest.approx((60 + 60 + 61) / 3)
    # 60; (540 + 1320) / 30 = 62; 65
    assert continual_accuracy(MATRIX, COUNTS) == pytest.approx((60 + 62 + 65) / 3)


def test_continual_accuracy_all_by_hand() -> None:
    # Row sums: 102, 138, 183; together 423, over 9 entries
    assert continual_accuracy_all(MATRIX) == pytest.approx(47.0)
    # (600 + 600 + 360) / 60 = 26; (540 + 1320 + 540) / 60 = 40; 65
    assert continual_accuracy_all(MATRIX, COUNTS) == pytest.approx((26 + 40 + 65) / 3)


def test_forward_accuracy_by_hand() -> None:
    assert forward_accuracy(MATRIX) == pytest.approx((30 + 12 + 18) / 3)  # 20
    # 20 x 30 + 30 x 12 + 30 x 18 = 1500, over 80 images
    assert forward_accuracy(MATRIX, COUNTS) == pytest.approx(18.75)


def test_forgetting_by_hand() -> None:
    # Task 0: 60 - 48 = 12; task 1: 66 - 63 = 3
    assert forgetting(MATRIX) == pytest.approx(7.5)
    # (10 x 12 + 20 x 3) / 30
    assert forgetting(MATRIX, COUNTS) == pytest.approx(6.0)


def test_forgetting_is_negative_when_old_tasks_improve() -> None:
    assert forgetting([[50.0, 0.0], [70.0, 60.0]]) == pytest.approx(-20.0)


def test_equal_counts_change_nothing() -> None:
    for metric in (final_accuracy, continual_accuracy, continual_accuracy_all, forward_accuracy, forgetting):
        assert metric(MATRIX, [100, 100, 100]) == pytest.approx(metric(MATRIX))


def test_nothing_right_and_all_right_are_percentages() -> None:
    assert final_accuracy([[100.0, 0.0], [0.0, 100.0]]) == 50.0


def test_an_array_serves_as_well() -> None:
    assert final_accuracy(np.array(MATRIX, dtype=np.float32)) == pytest.approx(61.0)


def test_the_summary_holds_every_metric_twice() -> None:
    summary = summarize(MATRIX, [80.0, 70.0, 61.0], COUNTS, upto_per_image=[80.0, 74.0, 65.0])
    assert summary == pytest.approx(
        {
            "final_accuracy": 61.0,
            "continual_accuracy": 181 / 3,
            "continual_accuracy_upto": 211 / 3,
            "continual_accuracy_all": 47.0,
            "forward_accuracy": 20.0,
            "forgetting": 7.5,
            "final_accuracy_per_image": 65.0,
            "continual_accuracy_per_image": 187 / 3,
            "continual_accuracy_upto_per_image": 73.0,
            "continual_accuracy_all_per_image": 131 / 3,
            "forward_accuracy_per_image": 18.75,
            "forgetting_per_image": 6.0,
        }
    )


def test_one_task_has_neither_forgetting_nor_future_and_still_makes_json() -> None:
    summary = summarize([[55.0]], [55.0], [10], upto_per_image=[55.0])
    assert summary["forgetting"] is None
    assert summary["forward_accuracy_per_image"] is None
    assert summary["final_accuracy"] == summary["continual_accuracy_all"] == 55.0
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


@pytest.mark.parametrize(
    ("matrix", "counts", "message"),
    [
        ([[1.0, 2.0]], None, "must be tasks x tasks, not 1 x 2"),
        ([], None, "must be tasks x tasks, not 0"),
        ([[1.0], [1.0, 2.0]], None, "rows of equal length"),
        ([[101.0]], None, "percentages from 0 to 100"),
        ([[50.0, 50.0], [50.0, -1.0]], None, "percentages from 0 to 100"),
        ([[float("nan")]], None, "percentages from 0 to 100"),
        (MATRIX, [1, 2], r"3 counts above 0, one per task, not \[1, 2\]"),
        (MATRIX, [1, 0, 2], "3 counts above 0"),
    ],
)
def test_bad_input_is_rejected(matrix: list[list[float]], counts: list[int] | None, message: str) -> None:
    for metric in (final_accuracy, continual_accuracy, continual_accuracy_all, forward_accuracy, forgetting):
        with pytest.raises(InputError, match=message):
            metric(matrix, counts)


def test_a_summary_needs_one_up_to_accuracy_per_task() -> None:
    with pytest.raises(InputError, match="upto has 2 values for 3 segments"):
        summarize(MATRIX, [1.0, 2.0], COUNTS, upto_per_image=[1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="upto_per_image has 1 values for 3 segments"):
        summarize(MATRIX, [1.0, 2.0, 3.0], COUNTS, upto_per_image=[1.0])


RETURNING = [[50, 10, 10], [40, 60, 10], [45, 50, 70], [60, 45, 60]]
"""Task 0 returns in the last of four segments."""


def test_tasks_that_return() -> None:
    shown = [[0], [1], [2], [0]]
    assert final_accuracy(RETURNING, shown=shown) == 55
    assert continual_accuracy(RETURNING, shown=shown) == pytest.approx((50 + 50 + 55 + 55) / 4)
    assert forward_accuracy(RETURNING, shown=shown) == 10
    assert forgetting(RETURNING, shown=shown) == (15 + 10) / 2  # task 0 has just been shown
    each = by_task(RETURNING, shown)
    assert [own["final_accuracy"] for own in each] == [60, 45, 60]
    assert [own["continual_accuracy"] for own in each] == [48.75, pytest.approx(155 / 3), 65]
    assert [own["forgetting"] for own in each] == [None, 15, 10]
    several = [[0, 1], [2]]
    assert continual_accuracy([[50, 10, 10], [40, 60, 20]], shown=several) == (30 + 40) / 2
    assert forgetting([[50, 10, 10], [40, 60, 20]], shown=several) == -20
    assert forward_accuracy([[50, 10, 10]], shown=[[0, 1, 2]]) is None


@pytest.mark.parametrize("shown", [None, [[0], [1], [2]], [[0], [1], [1], [0]], [[0], [1], [2], [3]]])
def test_segments_that_do_not_fit_the_matrix_are_refused(shown: list[list[int]] | None) -> None:
    with pytest.raises(InputError, match="the accuracy matrix"):
        final_accuracy(RETURNING, shown=shown)
