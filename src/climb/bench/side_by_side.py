"""Tables of several datasets side by side, as the paper prints CIFAR-100 and ImageNet-100."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from climb.bench.layouts import CellKey, Metric
from climb.bench.noise import Noise
from climb.bench.tables import Cell, Table


def side_by_side(tables: Mapping[str, Table]) -> Table:
    """One table of tables with the same layout: each metric once per dataset.

    Runs of different datasets are not compared: bold marks and notes are those of each table.

    Args:
        tables: by the name of the dataset.
    """
    if len(tables) == 1:
        return next(iter(tables.values()))
    shapes = [table.layout for table in tables.values()]
    cells: dict[CellKey, Cell] = {}
    metrics: list[Metric] = []
    noise: dict[str, Noise] = {}
    notes: dict[str, list[str]] = {}
    for dataset, table in tables.items():
        metrics += [replace(metric, label=f"{dataset} {metric.label}") for metric in table.layout.metrics]
        cells |= {(row, column, f"{dataset} {metric}"): cell for (row, column, metric), cell in table.cells.items()}
        noise |= {f"{dataset} {metric}": each for metric, each in table.noise.items()}
        for note in table.notes:
            notes.setdefault(note, []).append(dataset)
    rows = dict.fromkeys(row.label for shape in shapes for row in shape.rows)
    first = {label: next(row for shape in shapes for row in shape.rows if row.label == label) for label in rows}
    columns = dict.fromkeys(column for shape in shapes for column in shape.columns)
    layout = replace(shapes[0], rows=tuple(first.values()), columns=tuple(columns), metrics=tuple(metrics))
    texts = (note if len(own) == len(tables) else f"{', '.join(own)}: {note}" for note, own in notes.items())
    return Table(layout=layout, cells=cells, notes=tuple(texts), noise=noise)
