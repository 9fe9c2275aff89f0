"""A table as lines of text: one block of rows per column of the layout, as the paper stacks its task counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from climb.bench.cell import Cell, Metric, RowSpec, Table

OURS, PAPER, DIFFERENCE = "ours", "paper", "difference"
MISSING = "---"


@dataclass(frozen=True, kw_only=True)
class Field:
    """One place of a line: a mean with its spread, or a difference."""

    value: str
    spread: str = ""
    bold: bool = False

    @property
    def text(self) -> str:
        """Value and spread as one: ``44.09 ± 0.30``."""
        return f"{self.value} ± {self.spread}" if self.spread else self.value


@dataclass(frozen=True, kw_only=True)
class Heading:
    """What stands over a place of every line."""

    metric: Metric
    part: str
    """`OURS`, `PAPER` or `DIFFERENCE`."""

    @property
    def text(self) -> str:
        """``FA``, ``FA, paper``, ``Δ FA``."""
        label = self.metric.label
        return {OURS: label, PAPER: f"{label}, paper", DIFFERENCE: f"Δ {label}"}[self.part]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of a block."""

    row: RowSpec
    fields: tuple[Field, ...]
    apart: bool
    """Whether a rule goes before it: another group, or another kind of row."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """The rows of one column of the layout."""

    title: str
    lines: tuple[Line, ...]


def headings(table: Table) -> tuple[Heading, ...]:
    """What the lines hold: each metric that has a number, and the paper's where it prints any."""
    found = []
    for metric in table.layout.metrics:
        cells = [cell for (_, _, label), cell in table.cells.items() if label == metric.label]
        if cells:
            found.append(Heading(metric=metric, part=OURS))
        if any(cell.paper for cell in cells):
            found += [Heading(metric=metric, part=PAPER), Heading(metric=metric, part=DIFFERENCE)]
    return tuple(found)


def blocks(table: Table) -> tuple[Block, ...]:
    """The filled part of a table; rows and columns without a run are left out."""
    over = headings(table)
    found = []
    for column in table.layout.columns:
        lines = tuple(_lines(table, column, over))
        if lines:
            found.append(Block(title=column, lines=lines))
    return tuple(found)


def _lines(table: Table, column: str, over: tuple[Heading, ...]) -> Iterator[Line]:
    before: RowSpec | None = None
    for row in table.layout.rows:
        cells = [table.cell(row.label, column, heading.metric.label) for heading in over]
        if not any(cells):
            continue
        apart = before is not None and (row.kind, row.group) != (before.kind, before.group)
        fields = tuple(_field(cell, heading) for cell, heading in zip(cells, over, strict=True))
        yield Line(row=row, fields=fields, apart=apart)
        before = row


def _field(cell: Cell | None, heading: Heading) -> Field:
    digits = heading.metric.digits
    if cell is None:
        return Field(value=MISSING)
    if heading.part == OURS:
        return Field(value=f"{cell.mean:.{digits}f}", spread=_spread(cell.std, digits), bold=cell.bold)
    if cell.paper is None or cell.difference is None:
        return Field(value=MISSING)
    if heading.part == PAPER:
        spread = _spread(cell.paper.std, digits)
        return Field(value=f"{cell.paper.mean:.{digits}f}", spread=spread, bold=cell.paper.bold)
    return Field(value=f"{cell.difference:+.{digits}f}")


def _spread(std: float | None, digits: int) -> str:
    return "" if std is None else f"{std:.{digits}f}"
