"""Cells and notes of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from climb.bench.collect import value_at
from climb.bench.layouts import Layout, Metric, RowSpec, find_layout
from climb.bench.statistics import Comparison, hedges_g, sample_of
from climb.bench.tables import PlacedRun, build_table
from climb.errors import InputError

LAYOUT = Layout(
    name="table-test",
    title="A test",
    rows=(
        RowSpec(label="bound", method="iid", kind="bound"),
        RowSpec(label="a", method="a"),
        RowSpec(label="b", method="b"),
        RowSpec(label="other", method="pcmc", kind="indicative"),
    ),
    columns=("2 tasks", "4 tasks"),
    metrics=(Metric(key="final_accuracy", label="FA"), Metric(key="stored", label="stored", higher_is_better=None)),
)


def run(row: str, value: float, *, seed: int = 0, column: str = "2 tasks", **result: Any) -> PlacedRun:
    known = {"seed": seed, "final_accuracy": value, "dataset": "cifar100", "cbp": 1000, "method": row, "stored": 7}
    return PlacedRun(row=row, column=column, result={**known, "config_hash": f"{row}{column}{seed}", **result})


def seeds(row: str, values: list[float], **result: Any) -> list[PlacedRun]:
    return [run(row, value, seed=seed, **result) for seed, value in enumerate(values)]


def test_means_over_seeds_and_bold_within_a_column() -> None:
    table = build_table(
        LAYOUT,
        [
            *seeds("bound", [90.0, 91.0]),
            *seeds("a", [50.0, 52.0, 54.0]),
            *seeds("b", [40.0, 41.0, 42.0]),
            *seeds("other", [80.0, 81.0], memory_bounded=False, cbp=99999),
            *seeds("a", [10.0, 11.0], column="4 tasks"),
            *seeds("b", [30.0, 31.0], column="4 tasks"),
        ],
    )
    cell = table.cell("a", "2 tasks", "FA")
    assert cell is not None
    assert (cell.mean, cell.std, cell.n, cell.values, cell.seeds) == (52.0, 2.0, 3, (50.0, 52.0, 54.0), (0, 1, 2))
    bold = {key for key, found in table.cells.items() if found.bold}
    assert bold == {("a", "2 tasks", "FA"), ("b", "4 tasks", "FA")}  # bounds and indicative rows never are
    loser = table.cell("b", "2 tasks", "FA")
    assert loser is not None
    assert loser.p is not None
    assert loser.p < 0.05
    assert table.cell("a", "2 tasks", "nothing") is None


def test_groups_are_compared_separately() -> None:
    rows = tuple(RowSpec(label=name, method="climb", group=name[0]) for name in ("N1", "N2", "K1", "K2"))
    layout = Layout(name="t", title="t", rows=rows, columns=("2 tasks",), metrics=LAYOUT.metrics[:1])
    values = {"N1": 9.0, "N2": 5.0, "K1": 4.0, "K2": 1.0}
    placed = [run(name, value) for name, value in values.items()]
    assert {row for (row, _, _), cell in build_table(layout, placed).cells.items() if cell.bold} == {"N1", "K1"}


def test_a_row_without_rivals_is_not_bold() -> None:
    table = build_table(LAYOUT, seeds("a", [1.0, 2.0]))
    assert not any(cell.bold for cell in table.cells.values())


def test_the_test_is_the_callers_choice() -> None:
    """Two rows that rise together: unpaired they cannot be told apart, paired they can."""
    runs = [*seeds("a", [10.0, 20.0, 30.0]), *seeds("b", [9.0, 19.1, 28.9])]
    unpaired = build_table(LAYOUT, runs).cell("b", "2 tasks", "FA")
    paired = build_table(LAYOUT, runs, test=Comparison(kind="paired")).cell("b", "2 tasks", "FA")
    assert unpaired is not None
    assert paired is not None
    assert (unpaired.bold, paired.bold) == (True, False)


def test_a_paired_test_notes_its_number_of_pairs() -> None:
    """Its p and its effect are over the seeds that a row shares with the best; a third seed of either says nothing."""
    layout = replace(LAYOUT, rows=(*LAYOUT.rows, RowSpec(label="c", method="c")))
    runs = [*seeds("a", [10.0, 20.0, 99.0]), *seeds("b", [9.0, 19.1]), run("c", 1.0, seed=7)]
    table = build_table(layout, runs, test=Comparison(kind="paired"))
    best, b, c = (table.cell(name, "2 tasks", "FA") for name in ("a", "b", "c"))
    assert best is not None
    assert b is not None
    assert c is not None
    assert (best.pairs, b.pairs, c.pairs) == (None, 2, 0)
    assert (c.p, c.effect) == (None, None)
    assert b.effect == pytest.approx(hedges_g(sample_of({0: 10.0, 1: 20.0}), sample_of({0: 9.0, 1: 19.1})))
    assert "seeds that a row shares with the best, which is what the test is about: 0 to 2" in table.notes
    assert "no test for 1 of the numbers that are not bold: fewer than two seeds shared with the best" in table.notes
    alike = build_table(layout, runs[:2] + runs[3:5], test=Comparison(kind="paired"))
    assert not any("shares" in note for note in alike.notes)  # all have the same seeds
    assert all(cell.pairs is None for cell in build_table(layout, runs).cells.values())


def test_a_number_that_some_runs_lack_is_noted() -> None:
    """The seeds of a row are said for its runs; a number that an older version did not measure is of fewer."""
    runs = seeds("a", [1.0, 2.0, 3.0])
    assert not any("not of all runs" in note for note in build_table(LAYOUT, runs).notes)
    older = {key: value for key, value in runs[1].result.items() if key != "final_accuracy"}
    lacking = [runs[0], replace(runs[1], result=older), runs[2]]
    assert "not of all runs: a at 2 tasks, FA: seeds 0, 2" in build_table(LAYOUT, lacking).notes


def test_the_papers_value_and_the_difference() -> None:
    layout = find_layout("table-regular")
    placed = [
        PlacedRun(row="CLIMB", column="20 tasks", result={"seed": seed, "final_accuracy": 45.09, "dataset": "cifar100"})
        for seed in range(2)
    ]
    cell = build_table(layout, placed, against="paper").cell("CLIMB", "20 tasks", "FA")
    assert cell is not None
    assert cell.paper is not None
    assert (cell.paper.mean, cell.paper.n) == (44.09, 5)
    assert cell.difference == pytest.approx(1.0)
    assert build_table(layout, placed).cell("CLIMB", "20 tasks", "FA").paper is None  # type: ignore[union-attr]


def test_a_difference_from_the_papers_setting_is_noted() -> None:
    result = {"seed": 0, "final_accuracy": 30.0, "dataset": "cifar100"}
    placed = [PlacedRun(row="CLIMB", column="20 tasks", result=result, config={"learner": {"backbone": "micro"}})]
    said = "not the paper's setting: backbone micro (there resnet18)"
    assert said in build_table(find_layout("table-regular"), placed, against="paper").notes
    assert said not in build_table(find_layout("table-regular"), placed).notes


def test_the_papers_value_is_of_the_same_dataset() -> None:
    placed = [
        PlacedRun(row=row, column="20 tasks", result={"seed": 0, "final_accuracy": 45.0, "dataset": dataset})
        for row, dataset in (("CLIMB", "imagenet100"), ("CLA-E", "cifar100"))
    ]
    table = build_table(find_layout("table-regular"), placed, against="paper", mix=True)
    printed = [cell.paper.mean for cell in table.cells.values() if cell.paper]
    assert printed == [52.92, 40.95]


def test_a_dataset_that_the_paper_lacks_is_noted() -> None:
    table = build_table(LAYOUT, seeds("a", [1.0]), against="paper")
    assert table.notes[-1] == "the paper prints no such values for cifar100"


def test_values_are_sorted_by_seed() -> None:
    table = build_table(LAYOUT, [run("a", 3.0, seed=2), run("a", 1.0, seed=0), run("a", 2.0, seed=1)])
    cell = table.cell("a", "2 tasks", "FA")
    assert cell is not None
    assert (cell.values, cell.seeds) == ((1.0, 2.0, 3.0), (0, 1, 2))


def test_a_table_explains_its_numbers_and_bold_marks() -> None:
    seeded = "mean ± sample standard deviation, n = 3"
    rule = "one-sided unpaired equal-variance t-test, p >= 0.05; 1 comparisons"
    rows = [*seeds("a", [50.0, 52.0, 54.0]), *seeds("b", [40.0, 41.0, 42.0])]
    bold = f"bold: the best of its column, or not told apart from it ({rule})"
    shared = "all runs: cifar100"
    assert build_table(LAYOUT, rows).notes == (shared, seeded, bold)
    assert build_table(LAYOUT, rows[:3]).notes == (shared, seeded)  # nothing to be better than
    assert build_table(LAYOUT, rows[:5]).notes[1] == "mean ± sample standard deviation, n = 2 to 3"


def test_unequal_seeds_are_noted() -> None:
    """Three seeds against one: neither the means nor the bold of a column say which streams stand behind them."""
    runs = [*seeds("a", [50.0, 51.0, 52.0]), run("b", 60.0), *seeds("other", [1.0, 2.0, 3.0])]
    table = build_table(LAYOUT, runs)
    assert "seeds, and with them streams, differ: 0 to 2 (a, other); 0 (b)" in table.notes
    assert "no test for 1 of the numbers that are not bold: too few seeds, theirs or the best's" in table.notes
    later = [*runs, run("a", 1.0, column="4 tasks"), run("b", 1.0, column="4 tasks")]
    said = "seeds, and with them streams, differ: 0 to 2 (a at 2 tasks, other); 0 (a at 4 tasks, b)"
    assert said in build_table(LAYOUT, later).notes
    assert not any("seeds" in note for note in build_table(LAYOUT, seeds("a", [1.0, 2.0])).notes)


def test_different_runs_are_rejected_unless_mixed() -> None:
    runs = [run("a", 1.0, preset="paper"), run("b", 2.0, preset="default", seed=1)]
    with pytest.raises(InputError, match=r"different presets: default, paper.*--mix"):
        build_table(LAYOUT, runs)
    assert "different presets: default, paper" in build_table(LAYOUT, runs, mix=True).notes


def test_a_repeated_run_counts_once_and_two_runs_of_a_seed_are_rejected() -> None:
    once = build_table(LAYOUT, [run("a", 5.0), run("a", 5.0)]).cell("a", "2 tasks", "FA")
    assert once is not None
    assert once.n == 1
    with pytest.raises(InputError, match="two different runs with seed 0 at a, 2 tasks"):
        build_table(LAYOUT, [run("a", 5.0), run("a", 6.0, config_hash="another")])
    with pytest.raises(InputError, match="two results of one configuration, a2 tasks0, with seed 0 at a, 2 tasks"):
        build_table(LAYOUT, [run("a", 5.0), run("a", 5.5)])


def test_unknown_places_are_named() -> None:
    with pytest.raises(InputError, match="row of table-test 'c'"):
        build_table(LAYOUT, [run("c", 1.0)])
    with pytest.raises(InputError, match="did you mean '2 tasks'"):
        build_table(LAYOUT, [run("a", 1.0, column="2 task")])


def test_a_missing_number_has_no_cell() -> None:
    runs = [run("a", 1.0, stored=None), run("a", 3.0, seed=1, stored=None)]
    table = build_table(LAYOUT, runs)
    assert table.cell("a", "2 tasks", "stored") is None
    assert value_at({"diversity": None}, Metric(key="diversity.vendi_score", label="")) is None
    assert value_at({"x": float("nan")}, Metric(key="x", label="")) is None


def test_no_runs_make_an_empty_table() -> None:
    table = build_table(LAYOUT, [])
    assert (dict(table.cells), table.notes) == ({}, ())


def test_an_empty_table_has_no_note_on_the_paper() -> None:
    assert not any("paper" in note for note in build_table(find_layout("table-regular"), [], against="paper").notes)
