"""Every value that the paper prints, so that any table can be shown beside its own (Lefebvre et al., 2026)."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from climb.bench.statistics import Sample
from climb.errors import unknown


@dataclass(frozen=True, kw_only=True)
class Printed:
    """One number of a table of the paper."""

    table: str
    dataset: str
    column: str
    """"20 tasks"; empty where one number stands for all columns (the i.i.d. bound)."""
    row: str
    metric: str
    n: int
    """Seeds behind it."""
    mean: float
    std: float | None
    """None where none is printed. In the table of diversity it is over subsamples of one memory, not over seeds."""
    bold: bool

    @property
    def sample(self) -> Sample:
        """The number as a sample that statistics can be computed on."""
        return Sample(mean=self.mean, std=self.std, n=self.n)


@cache
def all_printed() -> tuple[Printed, ...]:
    """Every printed value, in the order of the paper."""
    with files(__package__).joinpath("values.csv").open(encoding="utf-8") as file:
        return tuple(
            Printed(
                table=line["table"],
                dataset=line["dataset"],
                column=line["column"],
                row=line["row"],
                metric=line["metric"],
                n=int(line["n"]),
                mean=float(line["mean"]),
                std=float(line["std"]) if line["std"] else None,
                bold=line["bold"] == "1",
            )
            for line in csv.DictReader(file)
        )


def paper_values(table: str) -> tuple[Printed, ...]:
    """The values of one table of the paper.

    >>> [value.mean for value in paper_values("table-pruning") if value.metric == "FA"]
    [52.92, 52.21, 50.34, 50.19]
    """
    found = tuple(value for value in all_printed() if value.table == table)
    if not found:
        raise unknown("table of the paper", table, {value.table for value in all_printed()})
    return found


def printed_value(table: str, dataset: str, row: str, column: str, metric: str) -> Printed | None:
    """What the paper prints at one place, or None where it prints nothing.

    >>> printed_value("table-regular", "cifar100", "CLIMB", "20 tasks", "FA").mean
    44.09
    """
    index = _index()
    return index.get((table, dataset, row, column, metric)) or index.get((table, dataset, row, "", metric))


@cache
def _index() -> dict[tuple[str, str, str, str, str], Printed]:
    return {(value.table, value.dataset, value.row, value.column, value.metric): value for value in all_printed()}
