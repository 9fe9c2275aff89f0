"""Tables of finished runs: mean and spread over seeds, statistical tests, and notes on what differs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from climb.bench.collect import FinishedRun, PlacedRun, recipe_differences, value_at
from climb.bench.comparable import PAPER, common_settings, differences, outliers, paper_differences
from climb.bench.layouts import CellKey, Layout
from climb.bench.noise import Noise, measure_noise
from climb.bench.paper import Printed, printed_value
from climb.bench.statistics import PAPER_RULE, Comparison, Sample, Verdict, bootstrap_interval, judge, rivals, sample_of
from climb.errors import InputError, unknown

MAX_NAMED = 5
"""An error names at most this many runs."""
Against = Literal["paper"]
NO_VERDICT = Verdict(bold=False, p=None, effect=None)


@dataclass(frozen=True, kw_only=True)
class Cell(Sample, Verdict):
    """One number of a table: a sample over seeds and the verdict of its comparison."""

    interval: tuple[float, float] | None = None
    """Bootstrap interval (95 %) of the mean."""
    paper: Printed | None = None
    """The paper's value at this place."""
    within_noise: bool = False
    """Whether it is not the best, but differs from it by less than the repeat noise of such a difference."""

    @property
    def difference(self) -> float | None:
        """Our mean minus the paper's."""
        return None if self.paper is None else self.mean - self.paper.mean


@dataclass(frozen=True, kw_only=True)
class Table:
    """A layout filled with numbers. A cell without a run is absent."""

    layout: Layout
    cells: Mapping[CellKey, Cell]
    notes: tuple[str, ...] = ()
    """Seeds, the rule of bold numbers, and differences between the runs."""
    noise: Mapping[str, Noise] = field(default_factory=dict)
    """The repeat noise of a metric, by its label; empty if no repeats are known."""

    def cell(self, row: str, column: str, metric: str) -> Cell | None:
        """The cell with these three labels, or None without a run."""
        return self.cells.get((row, column, metric))


def build_table(
    layout: Layout,
    placed: Iterable[PlacedRun],
    *,
    test: Comparison = PAPER_RULE,
    against: Against | None = None,
    mix: bool = False,
    repeats: Sequence[Sequence[FinishedRun]] = (),
) -> Table:
    """Fill a layout with runs.

    Args:
        layout: rows, columns, metrics.
        placed: the runs and their places; a place takes several seeds.
        test: how a row is compared with the best of its column.
        against: "paper" adds the paper's value at each place.
        mix: accept runs that differ in budget, dataset, probe, evaluated network or preset; the differences become
            notes.
        repeats: groups of runs that differ only by rounding, for the repeat noise.

    Raises:
        InputError: a place is not in the layout, two different runs or results have one seed at one place, or the runs
            cannot be compared.
    """
    runs = list(placed)
    places = _by_place(layout, runs)
    compared = [run for run in runs if layout.row(run.row).kind == "method"]
    reasons, remarks = differences(compared, others=runs, allowed=layout.varies)
    if reasons and not mix:
        odd = outliers(compared, runs, allowed=layout.varies)
        named = f". Unlike most: {'; '.join(odd)}" if 0 < len(odd) <= MAX_NAMED else ""
        raise InputError(
            f"these runs cannot be compared: {'; '.join(reasons)}{named}. "
            "Leave some out, or give --mix to print them all"
        )
    samples: dict[CellKey, Sample] = {}
    for (row, column), seeds in places.items():
        for metric in layout.metrics:
            values = ((seed, value_at(run.result, metric)) for seed, run in sorted(seeds.items()))
            if known := {seed: value for seed, value in values if value is not None}:
                samples[row, column, metric.label] = sample_of(known)
    judged = judge(layout, samples, test)
    measured = {metric.label: measure_noise(repeats, metric) for metric in layout.metrics}
    noise = {label: each for label, each in measured.items() if each is not None}
    within = _within_noise(layout, samples, noise)
    datasets = {place: str(next(iter(seeds.values())).result.get("dataset", "")) for place, seeds in places.items()}
    source = layout.printed_in or layout.name
    cells = {
        key: Cell(
            **vars(sample),
            **vars(judged.get(key, NO_VERDICT)),
            interval=bootstrap_interval(sample.values),
            paper=printed_value(source, datasets[key[:2]], *key) if against == "paper" else None,
            within_noise=key in within,
        )
        for key, sample in samples.items()
    }
    printed = any(cell.paper for cell in cells.values())
    notes = [*common_settings(runs), *_notes(cells, test, judged), *_noise_notes(layout, noise, within), *reasons]
    notes += [*_recipe_notes(layout, runs, except_for=PAPER if printed else ()), *remarks]
    notes += [layout.note] if layout.note else []
    if printed:
        notes += paper_differences(runs, allowed=layout.varies)
    elif against == "paper" and datasets:
        notes.append(f"the paper prints no such values for {', '.join(sorted(set(datasets.values())))}")
    return Table(layout=layout, cells=cells, notes=tuple(notes), noise=noise)


def _within_noise(layout: Layout, samples: Mapping[CellKey, Sample], noise: Mapping[str, Noise]) -> Collection[CellKey]:
    """The numbers that are not the best of their column, but differ from it by less than the repeat noise."""
    within: list[CellKey] = []
    for (_, metric, _), rows in rivals(layout, samples).items():
        better = next(each.higher_is_better for each in layout.metrics if each.label == metric)
        best = max(rows.values(), key=lambda sample: sample.mean if better else -sample.mean)
        within += [
            key
            for key, sample in rows.items()
            if metric in noise and sample is not best
            and abs(best.mean - sample.mean) < noise[metric].of_difference(best.n, sample.n)
        ]  # fmt: skip
    return within


def _noise_notes(layout: Layout, noise: Mapping[str, Noise], within: Collection[CellKey]) -> list[str]:
    """The repeat noise of each metric, and the meaning of its mark."""
    if not noise:
        return []
    digits = {metric.label: metric.digits for metric in layout.metrics}
    values = ", ".join(f"{label} {each.std:.{digits[label]}f}" for label, each in noise.items())
    first = next(iter(noise.values()))
    of = f"{first.runs} runs of {first.configurations} configuration{'s' if first.configurations > 1 else ''}"
    notes = [f"repeat noise, the standard deviation of runs that differ only by rounding: {values} ({of})"]
    return notes + ["~: below the repeat noise of its difference from the best"] * bool(within)


def _by_place(layout: Layout, runs: Sequence[PlacedRun]) -> dict[tuple[str, str], dict[int, PlacedRun]]:
    places: dict[tuple[str, str], dict[int, PlacedRun]] = defaultdict(dict)
    for run in runs:
        layout.row(run.row)  # rejects an unknown label
        if run.column not in layout.columns:
            raise unknown(f"column of {layout.name}", run.column, layout.columns)
        seed, own_hash = int(run.result["seed"]), run.result.get("config_hash")
        other = places[run.row, run.column].setdefault(seed, run)
        other_hash, place = other.result.get("config_hash"), f"with seed {seed} at {run.row}, {run.column}"
        folders = "" if None in (other.path, run.path) else f" ({other.path} and {run.path})"
        if other_hash != own_hash:
            both = f"configurations {other_hash} and {own_hash}{folders}"
            raise InputError(f"two different runs {place}: {both}; leave one out")
        # A run repeated on a GPU gives another number; the user must choose one.
        if any(value_at(other.result, metric) != value_at(run.result, metric) for metric in layout.metrics):
            raise InputError(f"two results of one configuration, {own_hash}, {place}{folders}; leave one out")
    return places


def _notes(cells: Mapping[CellKey, Cell], rule: Comparison, judged: Mapping[CellKey, Verdict]) -> list[str]:
    """Seeds, the rule of bold numbers and missing tests."""
    counts = sorted({cell.n for cell in cells.values()})
    notes = [f"mean ± sample standard deviation, n = {_range(counts)}"] if counts else []
    notes += _seed_notes(cells)
    comparisons = sum(verdict.p is not None for verdict in judged.values())
    if judged:
        notes.append(f"bold: the best of its column, or not told apart from it ({rule}; {comparisons} comparisons)")
    pairs = sorted({verdict.pairs for verdict in judged.values() if verdict.pairs is not None})
    if pairs and (len(pairs) > 1 or pairs != counts):
        notes.append(f"seeds that a row shares with the best, which is what the test is about: {_range(pairs)}")
    shared = rule.kind == "paired"
    few = "fewer than two seeds shared with the best" if shared else "too few seeds, theirs or the best's"
    if untested := sum(verdict.p is None and not verdict.bold for verdict in judged.values()):
        notes.append(f"no test for {untested} of the numbers that are not bold: {few}")
    return notes


def _recipe_notes(layout: Layout, runs: Iterable[PlacedRun], *, except_for: Collection[str]) -> list[str]:
    """Rows whose runs differ from what the table's own grid would run there, in settings that the row does not name.

    Args:
        layout: the table.
        runs: its runs.
        except_for: settings that another note covers.
    """
    rows: dict[str, dict[str, None]] = defaultdict(dict)
    for run in runs:
        row = layout.row(run.row)
        named = {*layout.where, *row.where, *except_for}
        for key, (value, expected) in recipe_differences(run.config, own_rates=row.own_rates).items():
            if key not in named:
                rows[run.row][f"{key.removeprefix('learner.')} = {value} (there {expected})"] = None
    texts = "; ".join(f"{row}, {', '.join(settings)}" for row, settings in rows.items())
    return [f"not the recipe's settings: {texts}"] if texts else []


def _seed_notes(cells: Mapping[CellKey, Cell]) -> list[str]:
    """Places with other seeds than the rest, and numbers that some runs of a place lack.

    Other seeds mean other class orders, hence other streams. Older versions did not measure all numbers.
    """
    places: dict[tuple[str, str], set[int]] = defaultdict(set)
    for (row, column, _), cell in cells.items():
        places[row, column] |= cell.by_seed.keys()
    seeds = {place: _span(sorted(own)) for place, own in places.items()}
    having: dict[str, list[str]] = defaultdict(list)
    rows = list(dict.fromkeys(row for row, _ in seeds))
    for (row, column), own in sorted(seeds.items(), key=lambda item: rows.index(item[0][0])):
        alike = len({other for (name, _), other in seeds.items() if name == row}) == 1
        having[own].append(row if alike else f"{row} at {column}")
    texts = "; ".join(f"{own} ({', '.join(dict.fromkeys(where))})" for own, where in having.items())
    notes = [f"seeds, and with them streams, differ: {texts}"] if len(having) > 1 else []
    lacking: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (row, column, metric), cell in cells.items():
        if (own := _span(cell.seeds)) != seeds[row, column]:
            lacking[f"{row} at {column}", own].append(metric)
    return notes + [f"not of all runs: {where}, {', '.join(m)}: seeds {own}" for (where, own), m in lacking.items()]


def _range(counts: Sequence[int]) -> str:
    """The first and the last of sorted numbers."""
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _span(seeds: Sequence[int]) -> str:
    """Sorted seeds in words.

    >>> _span((0,)), _span((0, 1, 2, 3)), _span((0, 2, 5))
    ('0', '0 to 3', '0, 2, 5')
    """
    consecutive = len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1))
    return f"{seeds[0]} to {seeds[-1]}" if consecutive else ", ".join(map(str, seeds))
