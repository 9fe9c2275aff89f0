from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from climb.serve.series import MOST, MOST_KEYS, RECENT, Series


def filled(lines: list[dict[str, Any]]) -> Series:
    series = Series()
    for line in lines:
        series.add(line)
    return series


@pytest.mark.parametrize("count", [0, 1, RECENT, MOST])
def test_a_journal_that_a_chart_can_show_is_kept_whole(count: int) -> None:
    lines = [{"batch": n, "event": "train", "objective": n / 7, "task": n // 9} for n in range(count)]
    assert filled(lines).lines() == lines


def test_only_numbers_are_kept() -> None:
    line = {"batch": 3, "event": "train", "objective": 1.5, "alignment": None, "note": "x", "on": True, "many": 10**400}
    assert filled([line]).lines() == [{"batch": 3, "event": "train", "objective": 1.5}]


def test_a_key_that_comes_later_has_no_earlier_values() -> None:
    count = 2000
    lines = [{"batch": n, "event": "train", **({"rank": 1.0} if n >= 1000 else {})} for n in range(count)]
    found = filled(lines).lines()
    assert {"rank" in line for line in found if line["batch"] < 990} == {False}
    assert {"rank" in line for line in found if line["batch"] > 1010} == {True}


@pytest.mark.parametrize("count", [5_000, 40_000])
def test_of_a_long_journal_every_part_and_every_spike_stays(count: int) -> None:
    values = np.random.default_rng(0).normal(size=count)
    spikes = {place: 100.0 + place for place in range(37, count, count // 30)}
    lines = [{"batch": n, "event": "train", "objective": spikes.get(n, values[n]), "total": n} for n in range(count)]
    found = filled(lines).lines()
    assert MOST // 2 <= len(found) <= MOST + RECENT + 256 + 2 * count // MOST
    batches = [line["batch"] for line in found]
    assert batches == sorted(batches)
    assert max(np.diff(batches)) < count / 100  # evenly, from the beginning
    assert batches[0] == 0
    assert {line["objective"] for line in found if line["objective"] > 50} == set(spikes.values())
    totals = [line["total"] for line in found]
    assert totals == sorted(totals)
    assert found[-1] == lines[-1]


def test_room_does_not_grow_with_the_journal() -> None:
    tracemalloc.start()
    try:
        series = Series()
        for n in range(8_000):
            series.add({"batch": n, "event": "train", **{f"key_{k}": n * k / 3 for k in range(30)}})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1_000_000
    assert len(series.lines()) > MOST // 2


def test_keys_without_end_do_not_fill_the_memory() -> None:
    found = filled([{"batch": n, f"key {n}": 1.0} for n in range(1000)]).lines()
    assert len({key for line in found for key in line}) == MOST_KEYS + 1  # and the event
