"""Statistics over seeds: mean and spread, tests against the best row, effect sizes and intervals.

The paper's rule, as far as its printed values show it: bold is the best mean of a column, and every other value whose
one-sided unpaired t-test with equal variances against the best gives p >= 0.05.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
from scipy.special import stdtr  # not scipy.stats: it takes a second to import

from climb.bench.layouts import CellKey, Layout
from climb.errors import InputError, find_named
from climb.seeds import numpy_generator

Name = TypeVar("Name")
KINDS = {"student": "unpaired equal-variance", "welch": "Welch's", "paired": "paired"}
"""The tests, in words."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One measured quantity over seeds. For printed values, only mean, spread and number are known."""

    mean: float
    std: float | None
    """Sample standard deviation (n - 1); None for a single value, or if none is printed."""
    n: int
    by_seed: Mapping[int, float] = field(default_factory=dict)
    """The values behind the mean, if known."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds in increasing order."""
        return tuple(self.by_seed)

    @property
    def values(self) -> tuple[float, ...]:
        """One value per seed."""
        return tuple(self.by_seed.values())


def sample_of(by_seed: Mapping[int, float]) -> Sample:
    """Mean and sample standard deviation of one value per seed.

    >>> sample_of({0: 1.0, 1: 2.0, 2: 3.0}).std
    1.0
    """
    values = np.asarray(list(by_seed.values()), dtype=np.float64)
    mean = float(values.mean()) if len(values) else math.nan
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return Sample(mean=mean, std=std, n=len(values), by_seed=dict(by_seed))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How a row is compared with the best one."""

    kind: Literal["student", "welch", "paired"] = "student"
    """Equal variances, unequal variances, or differences seed by seed over the seeds that both rows share."""
    sides: Literal[1, 2] = 1
    """One-sided tests whether the row is worse than the best, two-sided whether it differs."""
    holm: bool = False
    """Correct for the number of rows compared with the best (Holm, 1979)."""
    level: float = 0.05
    """A row with p at or above this level does not differ significantly from the best."""

    def __str__(self) -> str:
        sides = "one" if self.sides == 1 else "two"
        return f"{sides}-sided {KINDS[self.kind]} t-test, p >= {self.level:g}{', Holm-corrected' * self.holm}"


PAPER_RULE = Comparison()
"""The paper's "Student's t-test", in the reading that reproduces its bold marks. Welch's test reproduces one more of
the 270."""


def comparison(words: Sequence[str]) -> Comparison:
    """A comparison from words: student, welch or paired; one-sided or two-sided; holm.

    >>> str(comparison(["welch", "two-sided"]))
    "two-sided Welch's t-test, p >= 0.05"
    """
    settings: dict[str, tuple[str, object]] = {kind: ("kind", kind) for kind in KINDS}
    settings |= {"one-sided": ("sides", 1), "two-sided": ("sides", 2), "holm": ("holm", True)}
    chosen: dict[str, object] = {}
    for word in words:
        key, value = find_named("test", word, settings)
        if chosen.setdefault(key, value) != value:
            raise InputError(f"two tests at once: {', '.join(words)}; give one of student, welch, paired and one side")
    return Comparison(**chosen)  # type: ignore[arg-type]


def p_value(better: Sample, worse: Sample, rule: Comparison = PAPER_RULE, *, higher: bool = True) -> float | None:
    """Probability of a gap this large between equal rows, or None for too few values.

    A one-sided test takes the gap in the direction in which ``better`` is better.

    >>> a, b = Sample(mean=41.33, std=0.72, n=5), Sample(mean=39.87, std=0.88, n=5)
    >>> round(p_value(a, b), 4)
    0.0104
    """
    if rule.kind == "paired":
        better, worse = _paired(better, worse)
    pooled = _pooled_variance(better, worse)
    if pooled is None:
        return None
    gap, freedom = better.mean - worse.mean, better.n + worse.n - 2.0
    error = math.sqrt(pooled * (1 / better.n + 1 / worse.n))
    if rule.kind == "paired":
        gaps = sample_of({seed: value - worse.by_seed[seed] for seed, value in better.by_seed.items()})
        gap, freedom, error = gaps.mean, gaps.n - 1.0, (gaps.std or 0.0) / math.sqrt(gaps.n)
    elif rule.kind == "welch":
        a, b = ((each.std or 0.0) ** 2 / each.n for each in (better, worse))
        freedom = (a + b) ** 2 / (a**2 / (better.n - 1) + b**2 / (worse.n - 1)) if a + b > 0 else 1.0
        error = math.sqrt(a + b)
    gap = gap if higher else -gap
    # Without any spread, every gap is certain.
    statistic = math.copysign(math.inf, gap) if error == 0 and gap != 0 else gap / (error or 1.0)
    return float(stdtr(freedom, -statistic) if rule.sides == 1 else min(1.0, 2 * stdtr(freedom, -abs(statistic))))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: adjusted p-values, in the given order.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def hedges_g(a: Sample, b: Sample) -> float | None:
    """Gap of the means in units of the pooled standard deviation; None if that is unknown or zero.

    Cohen's d without its upward bias in small samples (Hedges, 1981, the exact factor).

    >>> round(hedges_g(Sample(mean=2.0, std=1.0, n=5), Sample(mean=1.0, std=1.0, n=5)), 3)
    0.903
    """
    pooled = _pooled_variance(a, b)
    if not pooled:
        return None
    d, freedom = (a.mean - b.mean) / math.sqrt(pooled), a.n + b.n - 2
    return d * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)


def _pooled_variance(a: Sample, b: Sample) -> float | None:
    """None if a spread is unknown, or printed beside a single value."""
    if a.std is None or b.std is None or a.n < 2 or b.n < 2:
        return None
    return ((a.n - 1) * a.std**2 + (b.n - 1) * b.std**2) / (a.n + b.n - 2)


def _paired(a: Sample, b: Sample) -> Iterator[Sample]:
    """Both samples over the seeds that they share."""
    seeds = sorted(a.by_seed.keys() & b.by_seed.keys())
    return (sample_of({seed: sample.by_seed[seed] for seed in seeds}) for sample in (a, b))


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Percentile bootstrap interval (95 %) of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    data = np.asarray(values, dtype=np.float64)
    rows = numpy_generator(0, "bootstrap").integers(len(data), size=(10_000, len(data)))
    low, high = np.quantile(data[rows].mean(axis=1), [(1 - 0.95) / 2, (1 + 0.95) / 2])
    return float(low), float(high)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of comparing one row with the best."""

    bold: bool
    p: float | None
    """p-value, corrected on request; None for the best row and if no test is possible."""
    effect: float | None
    """Hedges' g of the best against this row, positive if the best is better. A paired test uses shared seeds only."""
    pairs: int | None = None
    """In a paired test, the number of seeds that the row shares with the best."""


def verdicts(samples: Mapping[Name, Sample], *, higher: bool, rule: Comparison = PAPER_RULE) -> dict[Name, Verdict]:
    """Compare every row with the best one.

    >>> rows = {"a": Sample(mean=44.1, std=0.3, n=5), "b": Sample(mean=43.9, std=1.4, n=5)}
    >>> rows["c"] = Sample(mean=31.0, std=0.4, n=5)
    >>> [name for name, verdict in verdicts(rows, higher=True).items() if verdict.bold]
    ['a', 'b']
    """
    sign, paired = 1 if higher else -1, rule.kind == "paired"
    best = max(samples.values(), key=lambda sample: sign * sample.mean)
    others = {name: sample for name, sample in samples.items() if sample is not best}
    tested = {name: p_value(best, sample, rule, higher=higher) for name, sample in others.items()}
    known = {name: p for name, p in tested.items() if p is not None}
    adjusted = dict(zip(known, holm(list(known.values())), strict=True)) if rule.holm else known
    result = {}
    for name, sample in samples.items():
        # Equal means may differ in the last bit, which depends on the number of values.
        equal, p = math.isclose(sample.mean, best.mean, rel_tol=1e-12), adjusted.get(name)
        one, other = _paired(best, sample) if paired else (best, sample)
        gap = hedges_g(one, other) if name in others else None
        result[name] = Verdict(
            bold=equal or (p is not None and p >= rule.level),
            p=p,
            effect=None if gap is None else sign * gap,
            pairs=other.n if paired and name in others else None,
        )
    return result


def rivals(layout: Layout, samples: Mapping[CellKey, Sample]) -> dict[tuple[str, str, str], dict[CellKey, Sample]]:
    """The numbers that are compared with each other: by column, metric and group of rows.

    Bounds, indicative rows and metrics without better or worse have no rivals.
    """
    better = {metric.label: metric.higher_is_better for metric in layout.metrics}
    found: dict[tuple[str, str, str], dict[CellKey, Sample]] = defaultdict(dict)
    for row in layout.rows:
        for (label, column, metric), sample in samples.items():
            if label == row.label and row.kind == "method" and better[metric] is not None:
                found[column, metric, row.group][label, column, metric] = sample
    return found


def judge(layout: Layout, samples: Mapping[CellKey, Sample], rule: Comparison) -> dict[CellKey, Verdict]:
    """Compare the rows of each column, metric and group, without bounds, indicative rows and rows without rivals."""
    better = {metric.label: metric.higher_is_better for metric in layout.metrics}
    judged: dict[CellKey, Verdict] = {}
    for (_, metric, _), rows in rivals(layout, samples).items():
        judged |= verdicts(rows, higher=bool(better[metric]), rule=rule) if len(rows) > 1 else {}
    return judged
