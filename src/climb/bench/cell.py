"""From runs to the cells of a table: what goes where, mean and spread over seeds, what is bold."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from climb.bench.comparable import PAPERS, Aspect, differences, shared, unlike_most, unlike_the_paper
from climb.bench.paper import Printed, printed_value
from climb.bench.recipe import unlike_recipe
from climb.bench.statistics import PAPER_RULE, Comparison, Sample, Verdict, bootstrap_interval, sample_of, verdicts
from climb.errors import InputError, unknown

MOST_NAMED = 5
"""Runs that an error names."""
Against = Literal["paper"]
Settings = tuple[tuple[str, object], ...]
"""Dotted names in a run's configuration, with a value each: ``(("learner.memory.capacity", 2500),)``."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number of a run that a table shows."""

    key: str
    """Where it stands in `result.json`; a dot goes one level down: ``diversity.vendi_score``."""
    label: str
    """Heading: "CA", "FA"."""
    digits: int = 2
    """Decimals shown."""
    higher_is_better: bool | None = True
    """None: neither way, and nothing is bold."""
    scale: float = 1.0
    """What the number is multiplied by before it is shown (seconds to hours)."""


@dataclass(frozen=True, kw_only=True)
class RowSpec:
    """A row of a table."""

    label: str
    method: str
    kind: Literal["method", "bound", "indicative"] = "method"
    """Bounds and indicative rows are shown, never bold, and held to nobody's budget."""
    group: str = ""
    """Rows are compared within their group only; a table shows groups apart."""
    latex: str | None = None
    """The label in LaTeX, where it has symbols."""
    where: Settings = ()
    """Settings by which a run is known to belong here, besides its method."""
    own_rates: bool = True
    """Whether the method is meant to run at its own rates; False means CLIMB's."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The shape of a table: rows by columns by metrics."""

    name: str
    title: str
    rows: tuple[RowSpec, ...]
    columns: tuple[str, ...]
    """Labels such as "20 tasks"."""
    metrics: tuple[Metric, ...]
    where: Settings = ()
    """Settings that all its runs share."""
    varies: tuple[Aspect, ...] = ()
    """In what its runs may differ on purpose (a table of capacities: "capacity")."""
    note: str = ""
    """What a reader must know of every such table."""
    printed_in: str = ""
    """The paper's table that has these numbers, where it is not the one of this name."""

    def row(self, label: str) -> RowSpec:
        """The row with this label."""
        for row in self.rows:
            if row.label == label:
                return row
        raise unknown(f"row of {self.name}", label, [row.label for row in self.rows])


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A finished run and its place in a table."""

    row: str
    column: str
    result: Mapping[str, Any]
    """A `result.json`: one seed."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The run's configuration, as in its `config.json` under ``config``."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One number of a table."""

    mean: float
    std: float | None
    n: int
    bold: bool
    values: tuple[float, ...]
    """One per seed, by increasing seed."""
    seeds: tuple[int, ...]
    p: float | None = None
    """Against the best of its column; None for the best itself, and where no test is possible."""
    effect: float | None = None
    """Hedges' g of the best of its column against this one."""
    pairs: int | None = None
    """Seeds it shares with the best of its column, where the test is a paired one."""
    interval: tuple[float, float] | None = None
    """Bootstrap interval (95 %) of the mean."""
    paper: Printed | None = None
    """What the paper prints here."""
    difference: float | None = None
    """Our mean less the paper's."""


CellKey = tuple[str, str, str]
"""Row label, column label, metric label."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A layout filled with numbers. Cells without a run are absent."""

    layout: Layout
    cells: Mapping[CellKey, Cell]
    notes: tuple[str, ...] = ()
    """What a reader must know: seeds, the rule of bold, what differs between the runs."""

    def cell(self, row: str, column: str, metric: str) -> Cell | None:
        """The number at a place, by the three labels; None where no run is."""
        return self.cells.get((row, column, metric))


def build_table(
    layout: Layout,
    placed: Iterable[Placed],
    *,
    test: Comparison = PAPER_RULE,
    against: Against | None = None,
    mix: bool = False,
) -> Table:
    """Fill a layout with runs.

    Args:
        layout: rows, columns, metrics.
        placed: the runs, each with its place; several seeds go to one place.
        test: how a row is held against the best of its column.
        against: "paper" also looks up what the paper prints at each place.
        mix: fill the table even where its runs differ in budget, dataset, probe, network evaluated or preset; the
            differences become notes.

    Raises:
        InputError: a place that the layout lacks, two different runs or results of one seed at one place, or runs that
            cannot be compared, with the reason.
    """
    runs = list(placed)
    at = _by_place(layout, runs)
    compared = [run for run in runs if layout.row(run.row).kind == "method"]
    reasons, remarks = differences(compared, others=runs, allowed=layout.varies)
    if reasons and not mix:
        odd = unlike_most(compared, runs, allowed=layout.varies)
        named = f". Unlike most: {'; '.join(odd)}" if 0 < len(odd) <= MOST_NAMED else ""
        raise InputError(
            f"these runs cannot be compared: {'; '.join(reasons)}{named}. "
            "Leave some out, or give --mix to print them all"
        )
    samples: dict[CellKey, Sample] = {}
    for (row, column), seeds in at.items():
        for metric in layout.metrics:
            values = {seed: value_at(run.result, metric) for seed, run in sorted(seeds.items())}
            known = {seed: value for seed, value in values.items() if value is not None}
            if known:
                samples[row, column, metric.label] = sample_of(known)
    datasets = {place: str(next(iter(seeds.values())).result.get("dataset", "")) for place, seeds in at.items()}
    judged = _judge(layout, samples, test)
    cells = {}
    for key, sample in samples.items():
        verdict = judged.get(key, Verdict(bold=False, p=None, effect=None))
        source = layout.printed_in or layout.name
        printed = printed_value(source, datasets[key[:2]], *key) if against == "paper" else None
        cells[key] = Cell(
            mean=sample.mean,
            std=sample.std,
            n=sample.n,
            bold=verdict.bold,
            values=tuple(sample.by_seed.values()),
            seeds=tuple(sample.by_seed),
            p=verdict.p,
            effect=verdict.effect,
            pairs=verdict.pairs,
            interval=bootstrap_interval(list(sample.by_seed.values())),
            paper=printed,
            difference=None if printed is None else sample.mean - printed.mean,
        )
    beside = any(cell.paper for cell in cells.values())
    said = [*reasons, *_unlike_recipes(layout, runs, but=PAPERS if beside else ()), *remarks]
    said += [layout.note] if layout.note else []
    notes = [*shared(runs), *_notes(cells, test, judged, said)]
    if beside:
        notes += unlike_the_paper(runs, allowed=layout.varies)
    elif against == "paper" and datasets:
        notes.append(f"the paper prints no such values for {', '.join(sorted(set(datasets.values())))}")
    return Table(layout=layout, cells=cells, notes=tuple(notes))


def value_at(result: Mapping[str, Any], metric: Metric) -> float | None:
    """The metric of a result, or None where the run has none.

    >>> value_at({"seconds": {"train": 7200}}, Metric(key="seconds.train", label="hours", scale=1 / 3600))
    2.0
    """
    found: Any = result
    for part in metric.key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return None if found is None or not math.isfinite(found) else float(found) * metric.scale


def _by_place(layout: Layout, runs: Sequence[Placed]) -> dict[tuple[str, str], dict[int, Placed]]:
    at: dict[tuple[str, str], dict[int, Placed]] = {}
    for run in runs:
        layout.row(run.row)
        if run.column not in layout.columns:
            raise unknown(f"column of {layout.name}", run.column, layout.columns)
        seeds = at.setdefault((run.row, run.column), {})
        seed = int(run.result["seed"])
        other = seeds.get(seed)
        if other is not None and other.result.get("config_hash") != run.result.get("config_hash"):
            raise InputError(
                f"two different runs with seed {seed} at {run.row}, {run.column}: configurations "
                f"{other.result.get('config_hash')} and {run.result.get('config_hash')}; leave one out"
            )
        if other is not None and any(value_at(other.result, m) != value_at(run.result, m) for m in layout.metrics):
            raise InputError(  # a run repeated on a GPU: whoever takes one of them chooses a number
                f"two results of one configuration, {run.result.get('config_hash')}, with seed {seed} at {run.row}, "
                f"{run.column}; leave one out"
            )
        seeds.setdefault(seed, run)
    return at


def _judge(layout: Layout, samples: Mapping[CellKey, Sample], rule: Comparison) -> dict[CellKey, Verdict]:
    judged: dict[CellKey, Verdict] = {}
    groups = dict.fromkeys(row.group for row in layout.rows)
    for metric in layout.metrics:
        if metric.higher_is_better is None:
            continue
        for column in layout.columns:
            for group in groups:
                rivals = {
                    row.label: samples[row.label, column, metric.label]
                    for row in layout.rows
                    if row.group == group and row.kind == "method" and (row.label, column, metric.label) in samples
                }
                if len(rivals) < 2:  # nothing to be better than
                    continue
                for label, verdict in verdicts(rivals, higher=metric.higher_is_better, rule=rule).items():
                    judged[label, column, metric.label] = verdict
    return judged


def _notes(
    cells: Mapping[CellKey, Cell], rule: Comparison, judged: Mapping[CellKey, Verdict], said: Sequence[str]
) -> list[str]:
    counts = sorted({cell.n for cell in cells.values()})
    notes = []
    if counts:
        notes.append(f"mean ± sample standard deviation, n = {_from_to(counts)}")
    notes += _seeds(cells) + _fewer(cells)
    comparisons = sum(verdict.p is not None for verdict in judged.values())
    if judged:
        notes.append(f"bold: the best of its column, or not told apart from it ({rule}; {comparisons} comparisons)")
    pairs = sorted({verdict.pairs for verdict in judged.values() if verdict.pairs is not None})
    if pairs and (len(pairs) > 1 or pairs != counts):
        notes.append(f"seeds that a row shares with the best, which is what the test is about: {_from_to(pairs)}")
    untested = sum(verdict.p is None and not verdict.bold for verdict in judged.values())
    if untested:
        few = (
            "fewer than two seeds shared with the best"
            if rule.kind == "paired"
            else "too few seeds, theirs or the best's"
        )
        notes.append(f"no test for {untested} of the numbers that are not bold: {few}")
    return [*notes, *said]


def _unlike_recipes(layout: Layout, runs: Iterable[Placed], *, but: Collection[str]) -> list[str]:
    """Rows whose runs are not what the table's own grid would run there, in settings that the row does not name.

    Args:
        layout: the table.
        runs: what stands in it.
        but: settings that another note speaks of.
    """
    rows: dict[str, dict[str, None]] = {}
    for run in runs:
        row = layout.row(run.row)
        named = {*dict(layout.where + row.where), *but}
        for key, (value, meant) in unlike_recipe(run.config, own_rates=row.own_rates).items():
            if key not in named:
                said = f"{key.removeprefix('learner.')} = {value} (there {meant})"
                rows.setdefault(run.row, {})[said] = None
    said = "; ".join(f"{row}, {', '.join(settings)}" for row, settings in rows.items())
    return [f"not the recipe's settings: {said}"] if said else []


def _seeds(cells: Mapping[CellKey, Cell]) -> list[str]:
    """Which places have which seeds, where not all have the same: other class orders are other streams."""
    places = _places(cells)
    if len({frozenset(seeds) for seeds in places.values()}) < 2:
        return []
    having: dict[tuple[int, ...], list[str]] = {}
    for row in dict.fromkeys(row for row, _ in places):
        own = {column: tuple(sorted(seeds)) for (name, column), seeds in places.items() if name == row}
        alike = len(set(own.values())) == 1
        for column, seeds in list(own.items())[: 1 if alike else None]:
            having.setdefault(seeds, []).append(row if alike else f"{row} at {column}")
    said = "; ".join(f"{_span(seeds)} ({', '.join(where)})" for seeds, where in having.items())
    return [f"seeds, and with them streams, differ: {said}"]


def _fewer(cells: Mapping[CellKey, Cell]) -> list[str]:
    """Numbers that not all runs of their place have: an older version did not measure them."""
    places = _places(cells)
    lacking: dict[tuple[str, tuple[int, ...]], dict[str, None]] = {}
    for (row, column, metric), cell in cells.items():
        if set(cell.seeds) != places[row, column]:
            lacking.setdefault((f"{row} at {column}", cell.seeds), {})[metric] = None
    return [
        f"not of all runs: {where}, {', '.join(metrics)}: seeds {_span(seeds)}"
        for (where, seeds), metrics in lacking.items()
    ]


def _places(cells: Mapping[CellKey, Cell]) -> dict[tuple[str, str], set[int]]:
    """The seeds at each row and column, of whatever metric."""
    places: dict[tuple[str, str], set[int]] = {}
    for (row, column, _), cell in cells.items():
        places.setdefault((row, column), set()).update(cell.seeds)
    return places


def _from_to(counts: Sequence[int]) -> str:
    """Sorted numbers by the first and the last."""
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _span(seeds: Sequence[int]) -> str:
    """Seeds for people.

    >>> _span((0,)), _span((0, 1, 2, 3)), _span((0, 2, 5))
    ('0', '0 to 3', '0, 2, 5')
    """
    run = list(range(seeds[0], seeds[0] + len(seeds)))
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 2 and run == list(seeds) else ", ".join(map(str, seeds))
