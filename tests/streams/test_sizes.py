from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from climb.errors import InputError
from climb.streams.sizes import count_compositions, even_sizes, released_sizes, uniform_sizes


@given(parts=st.integers(1, 60), extra=st.integers(0, 200))
def test_even_sizes_sum_up_and_differ_by_at_most_one(parts: int, extra: int) -> None:
    sizes = even_sizes(parts + extra, parts)
    assert len(sizes) == parts
    assert sum(sizes) == parts + extra
    assert max(sizes) - min(sizes) <= 1


def test_even_sizes_spread_the_larger_ones() -> None:
    sizes = even_sizes(150, 100)
    assert abs(sum(sizes[:50]) - sum(sizes[50:])) <= 1


@pytest.mark.parametrize(("total", "parts", "cap"), [(6, 3, 3), (7, 4, 3), (5, 5, 2), (9, 3, 9), (8, 2, 4)])
def test_compositions_are_counted_as_by_enumeration(total: int, parts: int, cap: int) -> None:
    every = itertools.product(range(1, cap + 1), repeat=parts)
    assert count_compositions(total, parts, cap)[parts][total] == sum(sum(sizes) == total for sizes in every)


@given(data=st.data(), parts=st.integers(1, 30), cap=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
def test_uniform_sizes_sum_up_within_bounds(data: st.DataObject, parts: int, cap: int, seed: int) -> None:
    total = data.draw(st.integers(parts, parts * cap))
    sizes = uniform_sizes(total, parts, cap, np.random.RandomState(seed))
    assert len(sizes) == parts
    assert sum(sizes) == total
    assert min(sizes) >= 1
    assert max(sizes) <= cap


def test_every_composition_is_equally_likely() -> None:
    draws = 7000
    generator = np.random.RandomState(0)
    seen = Counter(uniform_sizes(6, 3, 3, generator) for _ in range(draws))
    every = [sizes for sizes in itertools.product((1, 2, 3), repeat=3) if sum(sizes) == 6]
    assert set(seen) == set(every)
    assert len(every) == 7
    chi_square = sum((seen[sizes] - draws / 7) ** 2 / (draws / 7) for sizes in every)
    assert chi_square < 22.46  # 6 degrees of freedom: exceeded once in a thousand


def test_uniform_sizes_have_no_preferred_position_where_counts_exceed_63_bits() -> None:
    assert count_compositions(100, 20, 12)[20][100] > 2**63
    generator = np.random.RandomState(0)
    sizes = np.array([uniform_sizes(100, 20, 12, generator) for _ in range(1500)])
    # The standard error of a position's mean is about 0.08 here.
    assert np.abs(sizes.mean(axis=0) - 5).max() < 0.4
    assert sizes.max() == 12


@pytest.mark.parametrize(("total", "parts", "cap"), [(10, 3, 3), (2, 3, 3)])
def test_impossible_compositions_are_refused(total: int, parts: int, cap: int) -> None:
    with pytest.raises(InputError, match=f"{total} classes cannot be cut into {parts} tasks of 1 to {cap}"):
        uniform_sizes(total, parts, cap, np.random.RandomState(0))


@given(parts=st.integers(1, 60), extra=st.integers(0, 100), seed=st.integers(0, 2**32 - 1))
def test_released_sizes_sum_up_without_an_empty_task(parts: int, extra: int, seed: int) -> None:
    sizes = released_sizes(parts + extra, parts, np.random.RandomState(seed))
    assert len(sizes) == parts
    assert sum(sizes) == parts + extra
    assert min(sizes) >= 1


def test_released_sizes_take_a_surplus_from_the_largest() -> None:
    # Raising zeros to ones makes 22 of 21 classes, so the first of the two tasks of two loses one.
    assert released_sizes(21, 20, np.random.RandomState(1)) == (1,) * 13 + (2,) + (1,) * 6


@pytest.mark.parametrize(("tasks", "first", "second"), [(20, 5.40, 4.60), (50, 2.23, 1.77)])
def test_released_sizes_favour_the_first_half_as_known(tasks: int, first: float, second: float) -> None:
    generator = np.random.RandomState(0)
    sizes = np.array([released_sizes(100, tasks, generator) for _ in range(8000)])
    halves = sizes[:, : tasks // 2].mean(), sizes[:, tasks // 2 :].mean()
    assert halves == pytest.approx((first, second), abs=0.03)


def test_released_sizes_exceed_the_cap_of_the_paper_as_often_as_known() -> None:
    generator = np.random.RandomState(1)
    above = np.mean([max(released_sizes(100, 20, generator)) > 12 for _ in range(8000)])
    assert above == pytest.approx(0.025, abs=0.007)
