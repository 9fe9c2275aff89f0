"""The text of a table: one block of rows per column of the layout, as the paper stacks its task counts."""

from __future__ import annotations

from dataclasses import dataclass

from climb.bench.layouts import Metric, RowSpec
from climb.bench.tables import Cell, Table

OURS, PAPER, DIFFERENCE = "ours", "paper", "difference"
MISSING = "---"


@dataclass(frozen=True, kw_only=True)
class Field:
    """The text of one cell: a mean with its spread, or a difference."""

    value: str
    spread: str = ""
    bold: bool = False
    within_noise: bool = False
    """Whether it differs from the best by less than the repeat noise; shown by a tilde."""

    @property
    def text(self) -> str:
        """Value, spread and tilde: ``44.09 ± 0.30 ~``."""
        return " ".join([self.value, *([f"± {self.spread}"] if self.spread else []), *["~"] * self.within_noise])


@dataclass(frozen=True, kw_only=True)
class Heading:
    """The heading of a column of fields."""

    metric: Metric
    part: str = OURS
    """`OURS`, `PAPER` or `DIFFERENCE`."""

    @property
    def text(self) -> str:
        """``FA``, ``FA, paper``, ``Δ FA``."""
        label = self.metric.label
        return {OURS: label, PAPER: f"{label}, paper", DIFFERENCE: f"Δ {label}"}[self.part]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of a block: of one column of the layout."""

    row: RowSpec
    place: tuple[str, ...]
    """In a table of several blocks, the title of the block in its first line, else ""; empty in other tables."""
    fields: tuple[Field, ...]
    apart: bool
    """Whether a rule goes before it: another group, or another kind of row."""


def headings(table: Table) -> list[Heading]:
    """One heading per metric with a number, and two more if the paper prints any."""
    result = []
    for metric in table.layout.metrics:
        cells = [cell for (_, _, label), cell in table.cells.items() if label == metric.label]
        parts = [OURS] * bool(cells) + [PAPER, DIFFERENCE] * any(cell.paper for cell in cells)
        result += [Heading(metric=metric, part=part) for part in parts]
    return result


def first_headings(table: Table) -> list[str]:
    """Headings of the columns before the numbers: the blocks, if there are several, and the methods."""
    return ["", "method"] if len(table.layout.columns) > 1 else ["method"]


def blocks(table: Table) -> dict[str, list[Line]]:
    """The rows of each column of the layout, without rows and columns that have no run."""
    lines = {column: _lines(table, column) for column in table.layout.columns}
    return {column: some for column, some in lines.items() if some}


def _lines(table: Table, column: str) -> list[Line]:
    lines: list[Line] = []
    over = headings(table)
    for row in table.layout.rows:
        cells = [table.cell(row.label, column, heading.metric.label) for heading in over]
        if any(cells):
            apart = bool(lines) and (row.kind, row.group) != (lines[-1].row.kind, lines[-1].row.group)
            place = () if len(table.layout.columns) == 1 else ("",) if lines else (column,)
            fields = tuple(map(_field, cells, over))
            lines.append(Line(row=row, place=place, fields=fields, apart=apart))
    return lines


def _field(cell: Cell | None, heading: Heading) -> Field:
    digits, number = heading.metric.digits, cell if heading.part == OURS else cell and cell.paper
    if cell is None or number is None:
        return Field(value=MISSING)
    if heading.part == DIFFERENCE:
        return Field(value=f"{cell.difference:+.{digits}f}")
    spread = "" if number.std is None else f"{number.std:.{digits}f}"
    within_noise = cell.within_noise and heading.part == OURS
    return Field(value=f"{number.mean:.{digits}f}", spread=spread, bold=number.bold, within_noise=within_noise)
