"""The grids match the paper's tables: rows, columns, seeds and settings of each run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from climb.bench.grids import GRIDS, Request, Scale, build_grid, describe
from climb.bench.layouts import LAYOUTS, RELEASED
from climb.bench.paper import all_printed
from climb.bench.tables import PlacedRun, build_table
from climb.errors import InputError
from climb.methods.validate import check_config
from climb.settings.config import RunConfig, to_dict
from climb.settings.presets import FAULTS, PRESETS, apply_preset
from climb.settings.recipes import get_recipe

ENTRIES = {
    # name: places x seeds, and the runs behind them (the i.i.d. bound serves every column)
    "table-regular": (8 * 3 * 5, 7 * 3 * 5 + 5),
    "table-irregular": (6 * 2 * 20, 6 * 2 * 20),
    "table-ablation": (7 * 5, 7 * 5),
    "table-sensitivity-architecture": (20 * 5, 17 * 5),  # the reference is one of each group
    "table-sensitivity-update": (14 * 5, 12 * 5),
    "table-pruning": (2 * 2 * 5, 2 * 2 * 5),
    "table-diversity": (4, 4),
    "table-simsiam": (5 * 2 * 5, 4 * 2 * 5 + 5),
    "table-forgetting": (6 * 3 * 5, 6 * 3 * 5),
    "table-faults": (6, 6),
    "figure-wallclock": (6 * 3 * 5, 6 * 3 * 5),
    "figure-dynamics": (1, 1),
    "figure-irregular": (6 * 2 * 20, 6 * 2 * 20),
}


@cache
def hashes(name: str, scale: Scale = "full", dataset: str = "cifar100") -> set[str]:
    return {entry.config.config_hash() for entry in build_grid(name, Request(scale=scale, dataset=dataset)).entries}


def config_at(name: str, row: str, column: str = "20 tasks", dataset: str = "cifar100") -> RunConfig:
    grid = build_grid(name, Request(dataset=dataset, seeds=(0,)))
    return next(entry.config for entry in grid.entries if (entry.row, entry.column) == (row, column))


def test_every_grid_is_listed() -> None:
    assert set(GRIDS) == set(ENTRIES)
    assert set(LAYOUTS) <= set(GRIDS)
    assert all(describe(name).endswith(".") for name in GRIDS)


@pytest.mark.parametrize("name", ENTRIES)
def test_runs_of_the_full_grid(name: str) -> None:
    grid = build_grid(name, Request())
    assert (len(grid.entries), len(hashes(name))) == ENTRIES[name]
    places = Counter((entry.row, entry.column) for entry in grid.entries)
    assert set(places) == {(row.label, column) for row in grid.layout.rows for column in grid.layout.columns}
    assert len(set(places.values())) == 1  # as many seeds everywhere


@pytest.mark.parametrize(
    ("name", "preset"),
    [(name, preset) for name in ENTRIES for preset in PRESETS if (name, preset) != ("table-faults", "reference")],
)
@pytest.mark.parametrize("scale", ["full", "tiny"])
def test_no_run_is_impossible(name: str, scale: Scale, preset: str) -> None:
    for entry in build_grid(name, Request(scale=scale, preset=preset, seeds=(0,))).entries:
        check_config(entry.config.learner)
        assert entry.config.learner.preset == ("reference" if entry.row == RELEASED else preset)


@pytest.mark.parametrize("name", ENTRIES)
def test_a_rehearsal_keeps_rows_and_columns_and_shrinks_the_rest(name: str) -> None:
    full, tiny = build_grid(name, Request()), build_grid(name, Request(scale="tiny"))
    assert tiny.layout == full.layout
    # No two rows that differ in full coincide in the rehearsal.
    assert {entry.config.seed for entry in tiny.entries} <= {0, 1}
    seeds = len({entry.config.seed for entry in full.entries})
    share = min(seeds, 2) / seeds
    assert len(hashes(name, "tiny")) == share * len(hashes(name))
    for entry in tiny.entries:
        config = entry.config
        assert config.data.dataset == "synthetic"
        assert config.learner.image_size == config.data.image_size == 16
        assert config.learner.backbone == "micro"
        assert config.learner.replay_batch == 16
        assert config.data.options["classes"] == 10
        assert 10 * (config.data.options["train_per_class"] + config.data.options["test_per_class"]) <= 200
        asked = 20 if config.learner.method == "iid" else int(entry.column.split()[0])
        assert config.stream.tasks == {20: 2, 50: 4, 100: 5}[asked]
    assert name.startswith("table-sensitivity") or {entry.config.learner.memory.capacity for entry in tiny.entries} == {
        60
    }


def test_every_printed_value_has_its_place() -> None:
    layouts = {name: build_grid(name, Request(seeds=(0,))).layout for name in LAYOUTS}
    for value in all_printed():
        layout = layouts[value.table]
        assert value.row in [row.label for row in layout.rows]
        assert value.column in ("", *layout.columns)


@pytest.mark.parametrize(
    ("row", "capacity", "short", "long", "images"),
    [
        ("N = 1000", 1000, 100, 24, 30),
        ("N = 1500", 1500, 100, 36, 30),
        ("N = 3500", 3500, 100, 84, 30),
        ("N = 5000", 5000, 100, 120, 30),
        ("L = 50", 2500, 50, 60, 30),
        ("L = 200", 2500, 200, 60, 30),
        ("K = 20", 2500, 100, 20, 30),
        ("K = 80", 2500, 100, 80, 30),
        ("M = 10", 2500, 100, 180, 10),
        ("M = 20", 2500, 100, 90, 20),
        ("M = 50", 2500, 100, 36, 50),
        *((f"{name} = {value}", 2500, 100, 60, 30) for name, value in {"N": 2500, "L": 100, "K": 60, "M": 30}.items()),
    ],
)
def test_coupling_of_the_memory_sizes(row: str, capacity: int, short: int, long: int, images: int) -> None:
    memory = config_at("table-sensitivity-architecture", row).learner.memory
    found = (memory.capacity, memory.short_term, memory.long_term, memory.images_per_centroid)
    assert found == (capacity, short, long, images)


def test_update_rules_change_one_thing() -> None:
    reference = config_at("table-regular", "CLIMB")
    for row, read, value in (
        ("p = 0.75", lambda config: config.learner.memory.novelty_percentile, 0.75),
        ("tau_ema = 0.9995", lambda config: config.learner.ema_decay, 0.9995),
        ("alpha_stm = 0.01", lambda config: config.learner.memory.stm_rate, 0.01),
    ):
        config = config_at("table-sensitivity-update", row)
        assert read(config) == value
        assert config != reference
    for row in ("p = 0.95", "tau_ema = 0.999", "alpha_stm = 0.1"):
        assert config_at("table-sensitivity-update", row) == reference


def test_grids_have_the_configurations_of_recipes() -> None:
    assert config_at("table-regular", "CLIMB").config_hash() == get_recipe("cifar100-20", preset="paper").config_hash()
    irregular = config_at("table-irregular", "CLIMB", "50 tasks", "imagenet100")
    assert irregular.config_hash() == get_recipe("imagenet100-irregular-50", preset="paper").config_hash()


def test_rates() -> None:
    assert config_at("table-regular", "CLA-R").learner.lr == 0.1  # its own
    for row in ("SSL", "SSL + FIFO + alignment + EMA", "SSL + memory + alignment + EMA (CLIMB)"):
        learner = config_at("table-ablation", row).learner
        assert (learner.lr, learner.alignment_weight) == (0.3, 2.0)  # CLIMB's
    # The appendix's rates for SimSiam are CLIMB's; it says of the others only that theirs are their best.
    for row, rates in {"CLIMB": (0.2, 0.1), "MinRed": (0.1, 0.1), "CLA-R": (0.1, 1.0), "i.i.d.": (0.1, 0.1)}.items():
        learner = config_at("table-simsiam", row).learner
        assert (learner.objective, learner.lr, learner.alignment_weight) == ("simsiam", *rates), row
    assert config_at("table-ablation", "SSL", dataset="imagenet100").learner.lr == 0.1


def test_a_method_that_the_ablation_lacks_keeps_its_rates() -> None:
    grid = build_grid("table-ablation", Request(methods=("climb-fifo", "cla-r")))
    rates = {entry.config.learner.method: entry.config.learner.lr for entry in grid.entries}
    assert rates == {"climb-fifo": 0.3, "cla-r": 0.1}


def test_grids_share_runs() -> None:
    regular = hashes("table-regular")
    assert hashes("table-forgetting") < regular
    assert hashes("figure-wallclock") < regular
    assert hashes("figure-dynamics") < regular
    assert hashes("figure-irregular") == hashes("table-irregular")
    assert len(hashes("table-diversity") - hashes("table-ablation")) == 0
    assert len(hashes("table-pruning") & regular) == 10
    assert len(hashes("table-ablation") & regular) == 5
    assert len(hashes("table-sensitivity-architecture") & regular) == 5


def test_all_of_a_rehearsal_is_small() -> None:
    assert len(set().union(*(hashes(name, "tiny") for name in GRIDS))) == 161


@pytest.mark.parametrize("name", ENTRIES)
def test_every_grid_takes_a_dataset_methods_seeds_and_tasks(name: str) -> None:
    asked = Request(dataset="imagenet100", methods=("climb",), seeds=(3, 8), tasks=(10, 25))
    grid = build_grid(name, asked)
    configs = [entry.config for entry in grid.entries]
    assert grid.layout.columns == ("10 tasks", "25 tasks")
    assert len(configs) == 2 * 2 * len(grid.layout.rows)
    assert {(config.data.dataset, config.learner.image_size) for config in configs} == {("imagenet100", 224)}
    assert {config.learner.method for config in configs} == {"climb"}
    assert {(config.seed, config.stream.tasks) for config in configs} == {(3, 10), (3, 25), (8, 10), (8, 25)}


def test_a_request_selects_methods_tasks_and_seeds() -> None:
    grid = build_grid("table-regular", Request(methods=("er-fifo", "climb", "minred"), seeds=(7,), tasks=(50, 10)))
    assert [row.label for row in grid.layout.rows] == ["MinRed", "CLIMB", "er-fifo"]
    assert grid.layout.columns == ("50 tasks", "10 tasks")
    assert len(grid.entries) == 6
    assert {entry.config.seed for entry in grid.entries} == {7}
    assert {entry.config.stream.tasks for entry in grid.entries} == {10, 50}


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("table-reguler", {}, "did you mean 'table-regular'"),
        ("table-regular", {"methods": ("clim",)}, "did you mean 'climb'"),
        ("table-regular", {"dataset": "cifar"}, "did you mean 'cifar10"),
        ("table-regular", {"dataset": "cifar", "scale": "tiny"}, "did you mean 'cifar10"),
        ("table-regular", {"preset": "papre"}, "did you mean 'paper'"),
        ("table-regular", {"tasks": (0,)}, "at least 1 task"),
        ("table-regular", {"seeds": (-1,)}, "at least 0"),
        ("table-sensitivity-update", {"methods": ("cla-e",)}, "settings of climb"),
        ("table-faults", {"methods": ("climb", "lump")}, "settings of climb"),
        ("table-simsiam", {"methods": ("climb", "osiris-r")}, "'osiris-r' brings its own objective"),
    ],
)
def test_invalid_options_are_rejected(name: str, asked: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_grid(name, Request(**asked))  # type: ignore[arg-type]


def test_odd_numbers_of_tasks() -> None:
    twice = build_grid("table-pruning", Request(tasks=(50, 20, 50), seeds=(0,)))
    assert twice.layout.columns == ("50 tasks", "20 tasks")
    assert len(twice.entries) == 4
    with pytest.raises(InputError, match="cifar10 has 10 classes, and a task at least one; given 20 tasks"):
        build_grid("table-pruning", Request(dataset="cifar10"))
    assert build_grid("table-pruning", Request(dataset="folder", tasks=(300,)))  # its number of classes is unknown


def test_a_bound_has_no_more_tasks_than_the_columns_ask_for() -> None:
    """With twenty, a dataset of ten classes would have no table with a bound in it."""

    def tasks(**asked: Any) -> set[int]:
        grid = build_grid("table-regular", Request(methods=("iid", "climb"), seeds=(0,), **asked))
        return {entry.config.stream.tasks for entry in grid.entries if entry.config.learner.method == "iid"}

    assert tasks(dataset="cifar10", tasks=(2, 5)) == {5}
    assert tasks() == tasks(tasks=(50,)) == tasks(tasks=(20, 5)) == {20}


def test_a_bound_that_is_added_to_a_table_stays_a_bound() -> None:
    layout = build_grid("table-irregular", Request(methods=("iid", "climb", "lump"))).layout
    assert [(row.label, row.kind) for row in layout.rows] == [("CLIMB", "method"), ("iid", "bound"), ("lump", "method")]


def test_a_preset_that_evaluates_teachers_may_be_compared_with_methods_that_have_none() -> None:
    assert build_grid("table-regular", Request(preset="paper")).layout.varies == ()
    assert build_grid("table-regular", Request(preset="default")).layout.varies == ("networks evaluated",)
    assert build_grid("table-sensitivity-architecture", Request(preset="default")).layout.varies == (
        "memory capacities",
        "networks evaluated",
    )


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("scale", ["full", "tiny"])
@pytest.mark.parametrize("name", GRIDS)
def test_the_runs_of_a_grid_are_as_their_recipe_has_them(name: str, scale: Scale, preset: str) -> None:
    if (name, preset) == ("table-faults", "reference"):
        return
    grid = build_grid(name, Request(scale=scale, preset=preset, seeds=(0,)))
    placed = [
        PlacedRun(row=at.row, column=at.column, result={"seed": 0, "method": ""}, config=to_dict(at.config.resolved()))
        for at in grid.entries
    ]
    notes = build_table(grid.layout, placed, mix=True).notes
    assert not [note for note in notes if note.startswith("not the recipe's settings")]


def test_the_table_of_a_figure_has_the_papers_numbers_too() -> None:
    grid = build_grid("figure-irregular", Request(methods=("climb",), seeds=(0,), tasks=(20,)))
    (at,) = grid.entries
    result = {"seed": 0, "method": "climb", "dataset": "cifar100", "final_accuracy": 44.0}
    placed = PlacedRun(row=at.row, column=at.column, result=result, config=to_dict(at.config.resolved()))
    table = build_table(grid.layout, [placed], against="paper")
    (cell,) = table.cells.values()
    assert cell.paper is not None
    assert cell.paper.mean == 43.59
    assert not [note for note in table.notes if note.startswith("the paper prints no such values")]


def test_wall_clock_times_warn_of_shared_devices() -> None:
    """What else ran on a GPU, no result knows."""
    note = build_grid("figure-wallclock", Request()).layout.note
    assert "shared its device" in note
    assert note in build_table(build_grid("figure-wallclock", Request()).layout, []).notes


def test_diversity_says_that_its_space_is_not_the_one_that_the_paper_names() -> None:
    notes = build_table(build_grid("table-diversity", Request()).layout, []).notes
    assert any("embeddings of the projector" in note for note in notes)


def test_the_table_of_faults_switches_one_at_a_time() -> None:
    printed = config_at("table-faults", "no fault")
    assert printed == config_at("table-regular", "CLIMB")
    for name, fields in FAULTS.items():
        learner = config_at("table-faults", f"+ {name}").learner
        assert learner == replace(printed.learner, **fields)
        assert learner != printed.learner
    released = config_at("table-faults", RELEASED).learner
    assert released == apply_preset(printed.learner, "reference")


def test_faults_cannot_be_added_to_the_preset_that_has_them() -> None:
    """Its rows would all be one run, under the name of a sound one."""
    with pytest.raises(InputError, match="preset reference has them all"):
        build_grid("table-faults", Request(preset="reference"))
