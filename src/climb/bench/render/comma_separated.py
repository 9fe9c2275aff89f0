"""A table as data: one line a cell, nothing rounded."""

from __future__ import annotations

import csv
import io

from climb.bench.cell import Table

HEADINGS = (
    "table",
    "column",
    "row",
    "kind",
    "group",
    "metric",
    "mean",
    "std",
    "n",
    "bold",
    "p",
    "hedges_g",
    "pairs",
    "low",
    "high",
    "paper_mean",
    "paper_std",
    "paper_bold",
    "difference",
    "seeds",
    "values",
)


def render_csv(table: Table) -> str:
    """Mean, spread, test and interval of every cell, the paper's value where it was asked for, and the raw values."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADINGS)
    layout = table.layout
    for column in layout.columns:
        for row in layout.rows:
            for metric in layout.metrics:
                cell = table.cell(row.label, column, metric.label)
                if cell is None:
                    continue
                low, high = cell.interval or (None, None)
                paper = cell.paper
                writer.writerow(
                    [
                        *(layout.name, column, row.label, row.kind, row.group, metric.label),
                        *(cell.mean, cell.std, cell.n, int(cell.bold), cell.p, cell.effect, cell.pairs, low, high),
                        *((paper.mean, paper.std, int(paper.bold)) if paper else (None, None, None)),
                        cell.difference,
                        " ".join(map(str, cell.seeds)),
                        " ".join(map(repr, cell.values)),
                    ]
                )
    return out.getvalue()
