"""Repeat noise: how far apart runs are that differ only by rounding.

A repeat is a run whose first weights are moved by one part in ten million (`RunConfig.repeat`). Training amplifies such
a change as it amplifies any other rounding. Differences below this noise mean nothing, however many seeds they have in
common. ``climb bench --repeats`` makes repeats, and ``climb table`` finds them among the given runs.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import variance

from climb.bench.collect import FinishedRun, value_at
from climb.bench.layouts import Metric
from climb.settings.config import RunConfig, from_dict


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The spread of one metric between repeats."""

    std: float
    """Standard deviation of single runs, pooled over configurations."""
    runs: int
    """Number of runs behind it."""
    configurations: int

    def of_difference(self, runs: int, others: int) -> float:
        """Standard deviation of the difference of two means over so many runs.

        >>> round(Noise(std=1.0, runs=5, configurations=1).of_difference(2, 2), 6)
        1.0
        """
        return self.std * math.sqrt(1 / runs + 1 / others)


def split_repeats(runs: Iterable[FinishedRun]) -> tuple[list[FinishedRun], list[list[FinishedRun]]]:
    """The runs without repeats, and the groups of at least two runs that differ only by rounding."""
    plain: list[FinishedRun] = []
    groups: dict[str, list[FinishedRun]] = defaultdict(list)
    for run in runs:
        config = from_dict(RunConfig, run.config)
        groups[replace(config, repeat=0).config_hash()].append(run)
        plain += [run] if config.repeat == 0 else []
    return plain, [group for group in groups.values() if len(group) > 1 and any(map(repeat_of, group))]


def repeat_of(run: FinishedRun) -> int:
    """The number of a repeat; 0 for a run itself."""
    return int(run.config.get("repeat", 0))


def measure_noise(groups: Sequence[Sequence[FinishedRun]], metric: Metric) -> Noise | None:
    """The noise of a metric; None if no group has two values of it."""
    values = [[value for run in group if (value := value_at(run.result, metric)) is not None] for group in groups]
    known = [own for own in values if len(own) > 1]
    if not known:
        return None
    freedom = [len(own) - 1 for own in known]
    pooled = sum(n * variance(own) for n, own in zip(freedom, known, strict=True)) / sum(freedom)
    return Noise(std=math.sqrt(pooled), runs=sum(map(len, known)), configurations=len(known))
