"""The paper's bold marks, recomputed from its printed means, spreads and numbers of seeds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from climb.bench.layouts import LAYOUTS
from climb.bench.paper import Printed, all_printed
from climb.bench.statistics import PAPER_RULE, Comparison, Verdict, verdicts


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A printed value beside what a rule says of it."""

    printed: Printed
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        """Whether the rule prints it as the paper does."""
        return self.printed.bold == self.verdict.bold


def recompute_marks(rule: Comparison = PAPER_RULE) -> list[Mark]:
    """What a rule says of every value that the paper compares over seeds.

    Bounds, the indicative row and the table of diversity (one run a column) are not compared over seeds.

    >>> marks = recompute_marks()
    >>> len(marks), sum(not mark.agrees for mark in marks)
    (270, 4)
    """
    rivals: dict[tuple[str, ...], dict[str, Printed]] = defaultdict(dict)
    for value in all_printed():
        row = LAYOUTS[value.table].row(value.row)
        if row.kind == "method" and value.n > 1:
            rivals[value.table, value.dataset, value.column, row.group, value.metric][row.label] = value
    marks = []
    for (name, *_, label), values in rivals.items():
        (metric,) = (metric for metric in LAYOUTS[name].metrics if metric.label == label)
        found = verdicts(
            {row: value.sample for row, value in values.items()}, higher=bool(metric.higher_is_better), rule=rule
        )
        marks += [Mark(printed=values[row], verdict=verdict) for row, verdict in found.items()]
    return marks
