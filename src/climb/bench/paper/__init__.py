"""The values that the paper prints (Lefebvre et al., 2026), and its bold marks recomputed from them."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from climb.bench.layouts import LAYOUTS, CellKey
from climb.bench.statistics import PAPER_RULE, Comparison, Sample, Verdict, judge


@dataclass(frozen=True, kw_only=True)
class Printed(Sample):
    """One number in a table of the paper: a sample without its values.

    In the table of diversity, the spread is over subsamples of one memory, not over seeds.
    """

    table: str
    dataset: str
    column: str
    """"20 tasks"; empty if one number stands for all columns (the i.i.d. bound)."""
    row: str
    metric: str
    bold: bool


@cache
def all_printed() -> tuple[Printed, ...]:
    """Every printed value, in the order of the paper."""
    with files(__package__).joinpath("values.csv").open(encoding="utf-8") as file:
        return tuple(map(_printed, csv.DictReader(file)))


def _printed(line: dict[str, Any]) -> Printed:
    numbers = {"n": int(line["n"]), "mean": float(line["mean"]), "std": float(line["std"]) if line["std"] else None}
    return Printed(**{**line, **numbers, "bold": line["bold"] == "1"})


def printed_value(table: str, dataset: str, row: str, column: str, metric: str) -> Printed | None:
    """The paper's value at one place, or None.

    >>> printed_value("table-regular", "cifar100", "CLIMB", "20 tasks", "FA").mean
    44.09
    """
    places = {(table, dataset, row, place, metric) for place in (column, "")}
    values = (v for v in all_printed() if (v.table, v.dataset, v.row, v.column, v.metric) in places)
    return next(values, None)


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A printed value and the verdict of a rule on it."""

    printed: Printed
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        """Whether the rule and the paper print it alike."""
        return self.printed.bold == self.verdict.bold


def recompute_marks(rule: Comparison = PAPER_RULE) -> list[Mark]:
    """The verdict of a rule on every value that the paper compares over seeds.

    These exclude bounds, the indicative row and the table of diversity (one run per column).

    >>> marks = recompute_marks()
    >>> len(marks), sum(not mark.agrees for mark in marks)
    (270, 4)
    """
    tables: dict[tuple[str, str], dict[CellKey, Printed]] = defaultdict(dict)
    for value in all_printed():
        if value.n > 1:
            tables[value.table, value.dataset][value.row, value.column, value.metric] = value
    return [
        Mark(printed=values[key], verdict=verdict)
        for (name, _), values in tables.items()
        for key, verdict in judge(LAYOUTS[name], values, rule).items()
    ]
