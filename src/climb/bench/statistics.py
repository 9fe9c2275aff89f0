"""What several seeds say: mean and spread, which rows are best, and how sure that is.

The rule of the paper's tables, as far as its printed values show it: bold is the best mean of a column, and every
other whose one-sided unpaired t-test with equal variances against the best gives p >= 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from climb.errors import InputError, unknown
from climb.seeds import numpy_generator


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One measured quantity over seeds; of printed values only mean, spread and number are known."""

    mean: float
    std: float | None
    """Sample standard deviation (n - 1); None for a single value, or where none is printed."""
    n: int
    by_seed: Mapping[int, float] = field(default_factory=dict)
    """The values behind the mean, where they are known."""


def sample_of(by_seed: Mapping[int, float]) -> Sample:
    """Mean and sample standard deviation of one value per seed.

    >>> sample_of({0: 1.0, 1: 2.0, 2: 3.0}).std
    1.0
    """
    if not by_seed:
        raise InputError("a sample needs at least one value; none was given")
    values = np.asarray(list(by_seed.values()), dtype=np.float64)
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return Sample(mean=float(values.mean()), std=std, n=len(values), by_seed=dict(by_seed))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How a row is held against the best one."""

    kind: Literal["student", "welch", "paired"] = "student"
    """Equal variances; variances of their own; or differences seed by seed, over the seeds both rows share."""
    sides: Literal[1, 2] = 1
    """One-sided asks whether the row is worse than the best, two-sided whether it differs."""
    holm: bool = False
    """Correct for the number of rows held against the best (Holm, 1979)."""
    level: float = 0.05
    """A row whose p is at least this is not told apart from the best."""

    def __str__(self) -> str:
        kind = {"student": "unpaired equal-variance", "welch": "Welch's", "paired": "paired"}[self.kind]
        sides = "one-sided" if self.sides == 1 else "two-sided"
        return f"{sides} {kind} t-test, p >= {self.level:g}" + (", Holm-corrected" if self.holm else "")


PAPER_RULE = Comparison()
"""The paper's "Student's t-test", read so that it reproduces its bold marks; of 270, Welch's reproduces one more."""


def comparison(words: Sequence[str]) -> Comparison:
    """A comparison from its words: student, welch or paired; one-sided or two-sided; holm.

    >>> str(comparison(["welch", "two-sided"]))
    "two-sided Welch's t-test, p >= 0.05"
    """
    settings: dict[str, dict[str, object]] = {
        "student": {"kind": "student"},
        "welch": {"kind": "welch"},
        "paired": {"kind": "paired"},
        "one-sided": {"sides": 1},
        "two-sided": {"sides": 2},
        "holm": {"holm": True},
    }
    chosen: dict[str, object] = {}
    for word in words:
        if word not in settings:
            raise unknown("test", word, settings)
        ((key, value),) = settings[word].items()
        if chosen.get(key, value) != value:
            raise InputError(f"two tests at once: {', '.join(words)}; give one of student, welch, paired and one side")
        chosen[key] = value
    return Comparison(**chosen)  # type: ignore[arg-type]


def p_value(better: Sample, worse: Sample, rule: Comparison = PAPER_RULE, *, higher: bool = True) -> float | None:
    """Probability of a gap this large if both were the same, or None where too few values are known to say.

    One-sided: of ``better`` lying this far on its good side (above, or below where lower is better).

    >>> a, b = Sample(mean=41.33, std=0.72, n=5), Sample(mean=39.87, std=0.88, n=5)
    >>> round(p_value(a, b), 4)
    0.0104
    """
    if rule.kind == "paired":
        seeds = _shared_seeds(better, worse)
        if len(seeds) < 2:
            return None
        gaps = sample_of({seed: better.by_seed[seed] - worse.by_seed[seed] for seed in seeds})
        assert gaps.std is not None
        gap, error, freedom = gaps.mean, gaps.std / math.sqrt(gaps.n), float(gaps.n - 1)
    else:
        if better.std is None or worse.std is None or better.n < 2 or worse.n < 2:
            return None
        gap = better.mean - worse.mean
        a, b = better.std**2 / better.n, worse.std**2 / worse.n
        if rule.kind == "student":
            freedom = float(better.n + worse.n - 2)
            pooled = ((better.n - 1) * better.std**2 + (worse.n - 1) * worse.std**2) / freedom
            error = math.sqrt(pooled * (1 / better.n + 1 / worse.n))
        else:
            freedom = (a + b) ** 2 / (a**2 / (better.n - 1) + b**2 / (worse.n - 1)) if a + b > 0 else 1.0
            error = math.sqrt(a + b)
    gap = gap if higher else -gap
    # Every seed the same: any gap is certain.
    statistic = math.copysign(math.inf, gap) if error == 0 and gap != 0 else gap / (error or 1.0)
    return _tail(statistic, freedom) if rule.sides == 1 else min(1.0, 2 * _tail(abs(statistic), freedom))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: adjusted p-values, in the order given.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def cohens_d(a: Sample, b: Sample) -> float | None:
    """Gap of the means in units of the pooled standard deviation; None where it is unknown or zero."""
    if a.std is None or b.std is None or a.n < 2 or b.n < 2:
        return None
    pooled = math.sqrt(((a.n - 1) * a.std**2 + (b.n - 1) * b.std**2) / (a.n + b.n - 2))
    return (a.mean - b.mean) / pooled if pooled > 0 else None


def hedges_g(a: Sample, b: Sample) -> float | None:
    """`cohens_d` without its upward bias in small samples (Hedges, 1981, the exact factor).

    >>> round(hedges_g(Sample(mean=2.0, std=1.0, n=5), Sample(mean=1.0, std=1.0, n=5)), 3)
    0.903
    """
    d = cohens_d(a, b)
    if d is None:
        return None
    freedom = a.n + b.n - 2
    return d * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)


def bootstrap_interval(
    values: Sequence[float], *, level: float = 0.95, draws: int = 10_000, seed: int = 0
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of the mean; None for fewer than two values."""
    if not 0 < level < 1:
        raise InputError(f"level must be between 0 and 1; given {level}")
    if len(values) < 2:
        return None
    data = np.asarray(values, dtype=np.float64)
    rows = numpy_generator(seed, "bootstrap").integers(len(data), size=(draws, len(data)))
    low, high = np.quantile(data[rows].mean(axis=1), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the comparison says of one row."""

    bold: bool
    p: float | None
    """Against the best, corrected where asked; None for the best itself and where no test is possible."""
    effect: float | None
    """Hedges' g of the best against this row, positive where the best is better; of the pairs alone where paired."""
    pairs: int | None = None
    """Seeds that the row shares with the best, where these are what the test is about."""


def verdicts(samples: Mapping[str, Sample], *, higher: bool, rule: Comparison = PAPER_RULE) -> dict[str, Verdict]:
    """Which rows are the best, or not told apart from it.

    >>> rows = {"a": Sample(mean=44.1, std=0.3, n=5), "b": Sample(mean=43.9, std=1.4, n=5)}
    >>> rows["c"] = Sample(mean=31.0, std=0.4, n=5)
    >>> [name for name, verdict in verdicts(rows, higher=True).items() if verdict.bold]
    ['a', 'b']
    """
    if not samples:
        return {}
    sign = 1 if higher else -1
    best = max(samples, key=lambda name: sign * samples[name].mean)
    raw = {name: p_value(samples[best], samples[name], rule, higher=higher) for name in samples if name != best}
    known = {name: p for name, p in raw.items() if p is not None}
    adjusted = dict(zip(known, holm(list(known.values())), strict=True)) if rule.holm else known
    found = {}
    for name, sample in samples.items():
        p = adjusted.get(name)
        pairs = _shared_seeds(samples[best], sample) if rule.kind == "paired" and name != best else None
        one, other = (_at(each, pairs) for each in (samples[best], sample))
        gap = None if name == best or one is None or other is None else hedges_g(one, other)
        found[name] = Verdict(
            # Equal but for the last bit, which depends on how many numbers were added up.
            bold=math.isclose(sample.mean, samples[best].mean, rel_tol=1e-12) or (p is not None and p >= rule.level),
            p=p,
            effect=None if gap is None else sign * gap,
            pairs=None if pairs is None else len(pairs),
        )
    return found


def _shared_seeds(a: Sample, b: Sample) -> list[int]:
    return sorted(a.by_seed.keys() & b.by_seed.keys())


def _at(sample: Sample, seeds: Sequence[int] | None) -> Sample | None:
    """The sample over some of its seeds; all of it for None, and nothing for none."""
    if seeds is None:
        return sample
    return sample_of({seed: sample.by_seed[seed] for seed in seeds}) if seeds else None


def _tail(statistic: float, freedom: float) -> float:
    """P(T > statistic) of Student's t."""
    from scipy.special import stdtr  # not scipy.stats: it takes a second to import

    return float(stdtr(freedom, -statistic))
