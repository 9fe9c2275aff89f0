"""Tests, corrections, intervals and effect sizes, against scipy and hand-worked examples."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from climb.bench.statistics import (
    Comparison,
    Sample,
    bootstrap_interval,
    comparison,
    hedges_g,
    holm,
    p_value,
    sample_of,
    verdicts,
)
from climb.errors import InputError

VALUES = st.lists(st.floats(0, 100, width=32).map(lambda x: round(x, 2)), min_size=2, max_size=8)


def sample(values: list[float]) -> Sample:
    return sample_of(dict(enumerate(values)))


def test_mean_and_sample_standard_deviation() -> None:
    found = sample([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert found.mean == 5.0
    assert found.std == pytest.approx((32 / 7) ** 0.5)
    assert sample([3.0]).std is None


@settings(max_examples=60, deadline=None)
@given(a=VALUES, b=VALUES, sides=st.sampled_from([1, 2]), kind=st.sampled_from(["student", "welch"]))
def test_unpaired_tests_agree_with_scipy(a: list[float], b: list[float], sides: int, kind: str) -> None:
    if np.std(a) < 1e-3 or np.std(b) < 1e-3:
        return  # scipy warns of lost precision
    ours = p_value(sample(a), sample(b), Comparison(kind=kind, sides=sides))  # type: ignore[arg-type]
    theirs = scipy.stats.ttest_ind(
        a, b, equal_var=kind == "student", alternative="greater" if sides == 1 else "two-sided"
    )
    assert ours == pytest.approx(theirs.pvalue, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("sides", [1, 2])
def test_the_paired_test_agrees_with_scipy_over_shared_seeds(sides: int) -> None:
    a, b = {0: 44.0, 1: 43.2, 2: 45.1, 7: 99.0}, {2: 44.2, 0: 43.1, 1: 43.0, 9: 0.0}
    theirs = scipy.stats.ttest_rel(
        [a[0], a[1], a[2]], [b[0], b[1], b[2]], alternative="greater" if sides == 1 else "two-sided"
    )
    rule = Comparison(kind="paired", sides=sides)  # type: ignore[arg-type]
    assert p_value(sample_of(a), sample_of(b), rule) == pytest.approx(theirs.pvalue)


def test_lower_is_better_flips_the_side() -> None:
    low, high = sample([1.0, 2.0, 3.0]), sample([2.0, 3.0, 4.5])
    assert p_value(low, high, higher=False) == pytest.approx(p_value(high, low))


def test_too_few_values_have_no_test() -> None:
    one, two = sample([1.0]), sample([1.0, 2.0])
    assert p_value(one, two) is None
    printed = Sample(mean=1.0, std=0.5, n=1)  # a spread that one value cannot have
    assert p_value(two, printed) is None
    assert p_value(printed, two) is None
    assert p_value(two, two, Comparison(kind="paired")) is not None
    assert p_value(two, sample_of({8: 1.0, 9: 2.0}), Comparison(kind="paired")) is None


def test_a_gap_without_spread_is_certain() -> None:
    flat = sample([5.0, 5.0, 5.0])
    assert p_value(flat, sample([4.0, 4.0, 4.0])) == 0.0
    assert p_value(flat, flat) == 0.5
    assert p_value(flat, flat, Comparison(kind="welch", sides=2)) == 1.0


def test_holm_by_hand() -> None:
    """Four tests: 0.005 x 4, 0.01 x 3, 0.03 x 2, then 0.04 x 1 held up to the one before."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_effect_sizes_by_hand() -> None:
    a, b = sample([2.0, 4.0, 6.0]), sample([1.0, 3.0, 5.0])
    assert hedges_g(a, b) == pytest.approx(0.5 * 0.797885, rel=1e-5)  # the factor for 4 degrees of freedom
    # Each sample counts by its degrees of freedom: a variance of 2 with one, of 0 with three.
    unequal = hedges_g(sample([0.0, 2.0]), sample([5.0, 5.0, 5.0, 5.0]))
    assert unequal == pytest.approx(-4 / (2 / 4) ** 0.5 * 0.797885, rel=1e-5)
    assert hedges_g(sample([1.0, 1.0]), sample([2.0, 2.0])) is None
    # A spread printed beside a single value is no spread of it.
    assert hedges_g(Sample(mean=1.0, std=0.5, n=2), Sample(mean=0.0, std=0.5, n=1)) is None


def test_the_bootstrap_interval_agrees_with_scipy() -> None:
    values = list(np.random.default_rng(0).normal(50, 3, size=30))
    low, high = bootstrap_interval(values) or (0.0, 0.0)
    theirs = scipy.stats.bootstrap((values,), np.mean, method="percentile", rng=np.random.default_rng(1))
    assert (low, high) == pytest.approx(tuple(theirs.confidence_interval), abs=0.1)
    assert bootstrap_interval(values) == (low, high)  # its own seed
    assert bootstrap_interval([1.0]) is None


def test_bold_is_the_best_and_rows_without_a_significant_difference() -> None:
    rows = {
        "best": Sample(mean=47.46, std=1.76, n=5),
        "close": Sample(mean=46.09, std=1.69, n=5),
        "far": Sample(mean=44.78, std=1.82, n=5),
        "alone": Sample(mean=47.0, std=None, n=1),
    }
    found = verdicts(rows, higher=True)
    assert [name for name, verdict in found.items() if verdict.bold] == ["best", "close"]
    assert found["best"].p is None
    assert found["far"].effect == pytest.approx(hedges_g(rows["best"], rows["far"]))


def test_a_p_value_at_the_level_is_not_significant() -> None:
    rows = {"best": Sample(mean=47.46, std=1.76, n=5), "far": Sample(mean=44.78, std=1.82, n=5)}
    p = p_value(*rows.values())
    assert p is not None
    assert verdicts(rows, higher=True, rule=Comparison(level=p))["far"].bold
    assert not verdicts(rows, higher=True, rule=Comparison(level=p + 1e-12))["far"].bold


def test_equal_best_means_are_both_bold_without_a_test() -> None:
    rows = {name: Sample(mean=mean, std=None, n=1) for name, mean in (("a", 25.0), ("b", 25.0), ("c", 24.0))}
    found = verdicts(rows, higher=True)
    assert [name for name, verdict in found.items() if verdict.bold] == ["a", "b"]


def test_holm_bolds_more_rows_never_fewer() -> None:
    rows = {str(i): Sample(mean=50 - 0.65 * i, std=1.0, n=5) for i in range(5)}
    plain = {name for name, verdict in verdicts(rows, higher=True).items() if verdict.bold}
    corrected = {n for n, verdict in verdicts(rows, higher=True, rule=Comparison(holm=True)).items() if verdict.bold}
    assert plain < corrected


def test_equal_means_of_different_numbers_of_seeds_are_a_tie() -> None:
    """61.64 three times adds up to another last bit than 61.64 once."""
    rows = {"once": sample_of({0: 61.64}), "thrice": sample_of(dict.fromkeys(range(3), 61.64))}
    assert rows["once"].mean != rows["thrice"].mean
    assert all(verdict.bold for verdict in verdicts(rows, higher=True).values())


def test_lower_is_better_bolds_the_lowest_and_its_effect_is_positive() -> None:
    rows = {"a": Sample(mean=-5.0, std=0.5, n=5), "b": Sample(mean=-1.0, std=0.5, n=5)}
    found = verdicts(rows, higher=False)
    assert found["a"].bold
    assert not found["b"].bold
    assert found["b"].effect is not None
    assert found["b"].effect > 0


def test_a_comparison_from_words() -> None:
    assert comparison([]) == comparison(["student", "one-sided"]) == Comparison()
    assert comparison(["paired", "two-sided", "holm"]) == Comparison(kind="paired", sides=2, holm=True)
    with pytest.raises(InputError, match="did you mean 'welch'"):
        comparison(["welsh"])
    with pytest.raises(InputError, match="two tests at once"):
        comparison(["welch", "paired"])
