"""Finding runs on disk, and their places in tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from climb.bench.arrange import fitting_layout, own_layout, place
from climb.bench.collect import FinishedRun, find_runs, started_from
from climb.bench.grids import Request, configure
from climb.bench.layouts import CA, CA_UPTO, FA, FORGETTING, PER_IMAGE, RELEASED, find_layout
from climb.bench.tables import build_table
from climb.errors import InputError
from climb.methods import choose_method
from climb.settings.config import (
    DataConfig,
    EvaluationConfig,
    LearnerConfig,
    MemoryConfig,
    RunConfig,
    StreamConfig,
    to_dict,
)
from climb.settings.presets import apply_preset
from climb.settings.recipes import get_recipe

RESULTS = Path(__file__).parents[2] / "results"


def run(
    method: str = "climb",
    *,
    seed: int = 0,
    tasks: int = 20,
    kind: str = "regular",
    dataset: str = "cifar100",
    capacity: int = 2500,
    memory: dict[str, Any] | None = None,
    preset: str = "default",
    **learner: Any,
) -> FinishedRun:
    """A run of a method as its recipe has it, but for what is given."""
    sizes = LearnerConfig(memory=MemoryConfig(capacity=capacity, **(memory or {})))
    config = RunConfig(
        recipe=f"{dataset}-{tasks}",
        seed=seed,
        data=DataConfig(dataset=dataset),
        stream=StreamConfig(kind=kind, tasks=tasks),
        learner=replace(choose_method(apply_preset(sizes, preset), method), **learner),
        evaluation=EvaluationConfig(),
    )
    result = {
        "seed": seed,
        "tasks": tasks,
        "dataset": dataset,
        "method": method,
        "preset": config.learner.preset,
        "final_accuracy": 40.0 + seed,
        "config_hash": config.config_hash(),
    }
    return FinishedRun(path=Path(f"{method}-{seed}"), result=result, config=to_dict(config.resolved()))


def rows(found: list[FinishedRun], layout: str) -> list[str]:
    return [placed.row for placed in place(find_layout(layout), found)[0]]


def write(folder: Path, found: FinishedRun) -> None:
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(found.result))
    (folder / "config.json").write_text(json.dumps({"config": found.config}))


def test_runs_are_found_at_any_depth_once(tmp_path: Path) -> None:
    write(tmp_path / "a", run())
    write(tmp_path / "b" / "c", run(seed=1))
    (tmp_path / "unfinished").mkdir()
    found = find_runs([tmp_path, tmp_path / "a", tmp_path / "b" / "c" / "result.json"])
    assert [item.result["seed"] for item in found] == [0, 1]


def test_settings_that_an_older_run_lacks_are_filled_in(tmp_path: Path) -> None:
    old = run()
    del old.config["learner"]["ema_period"]
    old.config["learner"]["memory"]["ltm_centroids"] = None
    write(tmp_path / "a", old)
    (found,) = find_runs([tmp_path])
    assert found.config["learner"]["ema_period"] == "step"
    assert found.config["learner"]["memory"]["ltm_centroids"] == 60


def test_an_invalid_run_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        find_runs([tmp_path / "nowhere"])
    with pytest.raises(InputError, match="no finished run"):
        find_runs([tmp_path])
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(InputError, match="not a complete run folder"):
        find_runs([tmp_path])
    write(tmp_path / "a", run())
    for name, text, said in (
        ("result.json", "[]", "must hold a JSON object, not a list"),
        ("result.json", "null", "must hold a JSON object, not null"),
        ("result.json", json.dumps({"config_hash": "0"}), "its result lacks dataset, method"),
        ("config.json", "[]", "not a complete run folder"),
        (
            "config.json",
            json.dumps({"config": {"colour": "red"}}),
            "not a complete run folder.*unknown key of RunConfig",
        ),
    ):
        whole = (tmp_path / "a" / name).read_text()
        (tmp_path / "a" / name).write_text(text)
        with pytest.raises(InputError, match=said):
            find_runs([tmp_path / "a"])
        (tmp_path / "a" / name).write_text(whole)
    assert len(find_runs([tmp_path / "a"])) == 1


def test_an_unreadable_run_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a", run())
    write(tmp_path / "b", run(seed=1))
    result = tmp_path / "b" / "result.json"
    result.write_text(result.read_text()[:20])
    assert [item.path.name for item in find_runs([tmp_path])] == ["a"]
    (said,) = caplog.messages
    assert said.startswith(f"skipped {tmp_path / 'b'}: not a complete run folder: cannot read {result}")
    for named in (tmp_path / "b", result):
        with pytest.raises(InputError, match="not a complete run folder"):
            find_runs([tmp_path, named])
    (tmp_path / "a" / "result.json").write_text("")
    with pytest.raises(InputError, match="none of the 2 runs found can be read"):
        find_runs([tmp_path])


def test_a_paper_table_takes_runs_by_method_tasks_and_stream() -> None:
    found = [run(), run("minred"), run(tasks=7), run("lump"), run(kind="irregular"), run(objective="simsiam")]
    placed, left = place(find_layout("table-regular"), found)
    assert [(item.row, item.column) for item in placed] == [("CLIMB", "20 tasks"), ("MinRed", "20 tasks")]
    assert left == found[2:]
    assert rows(found, "table-irregular") == ["CLIMB"]
    assert rows(found, "table-simsiam") == ["CLIMB"]


def test_a_run_with_a_fault_fits_only_the_table_of_faults() -> None:
    faulty = run(preset="paper", embed_mode="eval", augment_per_batch=True)
    sound = run(preset="paper", embed_mode="eval")
    released = run(preset="reference", embed_mode="train", augment_per_batch=True, train_aligner=False)
    assert rows([faulty], "table-faults") == ["+ batch-views"]
    assert rows([sound], "table-faults") == ["no fault"]
    assert rows([run(preset="default")], "table-faults") == ["no fault"]  # of its own preset
    assert rows([faulty], "table-regular") == []
    assert rows([sound], "table-regular") == ["CLIMB"]
    assert rows([released], "table-faults") == [RELEASED]
    assert rows([released], "table-regular") == ["CLIMB"]


def test_sensitivity_rows_match_settings_and_each_group_has_the_reference() -> None:
    layout = "table-sensitivity-architecture"
    reference = {"stm_centroids": 100, "ltm_centroids": 60, "images_per_centroid": 30}
    assert rows([run(memory=reference)], layout) == ["N = 2500", "L = 100", "K = 60", "M = 30"]
    assert rows([run(capacity=1000, memory={"stm_centroids": 100, "ltm_centroids": 24})], layout) == ["N = 1000"]
    assert rows([run(memory={**reference, "stm_centroids": 50})], layout) == ["L = 50"]
    assert rows([run(memory={**reference, "ltm_centroids": 80})], layout) == ["K = 80"]
    assert rows([run(memory={**reference, "images_per_centroid": 50, "ltm_centroids": 36})], layout) == ["M = 50"]
    # Not the paper's rows: K does not follow N or M, or a second thing varies.
    assert rows([run(capacity=1000, memory={"stm_centroids": 100, "ltm_centroids": 60})], layout) == []
    assert rows([run(capacity=1000, memory={"stm_centroids": 40, "ltm_centroids": 24})], layout) == []
    assert rows([run(memory={**reference, "images_per_centroid": 50})], layout) == []
    assert rows([run(memory={**reference, "novelty_percentile": 0.9})], layout) == []
    update = "table-sensitivity-update"
    assert rows([run(capacity=1000, memory={"stm_centroids": 100, "ltm_centroids": 24})], update) == []
    assert rows([run()], update) == ["p = 0.95", "tau_ema = 0.999", "alpha_stm = 0.1"]
    assert rows([run(memory={"novelty_percentile": 0.9})], update) == ["p = 0.90"]
    assert rows([run(ema_decay=0.9995)], update) == ["tau_ema = 0.9995"]


def test_the_first_table_that_holds_all_runs_is_found() -> None:
    assert fitting_layout([run(), run("cla-e", tasks=50)]).name == "table-regular"
    assert fitting_layout([run(), run("climb-fifo")]).name == "table-ablation"
    assert fitting_layout([run(kind="irregular")]).name == "table-irregular"
    small = run(capacity=1000, memory={"stm_centroids": 100, "ltm_centroids": 24})
    assert fitting_layout([small]).name == "table-sensitivity-architecture"
    assert fitting_layout([run(), run(seed=1, ema_decay=0.99)]).name == "table-sensitivity-update"
    with pytest.raises(InputError, match="no table of the paper"):
        fitting_layout([run("lump")])


def test_an_own_layout_has_a_row_per_method_and_a_column_per_task_count() -> None:
    found = [run("pcmc"), run(tasks=100), run(), run("iid"), run(kind="irregular", tasks=50)]
    layout, placed = own_layout(found)
    assert [(row.label, row.kind) for row in layout.rows] == [
        ("iid", "bound"),
        ("climb", "method"),
        ("pcmc", "indicative"),
    ]
    assert layout.columns == ("20 tasks", "50 irregular tasks", "100 tasks")
    assert len(placed) == 5


def test_a_saved_scenario_is_placed_by_its_kind() -> None:
    """Whatever the recipe that replayed it says."""
    saved = run()
    saved.config["stream"]["manifest"] = {"kind": "irregular", "tasks": [[0, 1], [2]]}
    assert rows([saved], "table-regular") == []
    assert rows([saved], "table-irregular") == ["CLIMB"]
    layout, _ = own_layout([saved])
    assert layout.columns == ("20 irregular tasks",)
    assert layout.metrics[-1] == PER_IMAGE[-1]


def test_irregular_tasks_add_metrics_per_image() -> None:
    even, uneven = (
        [metric.label for metric in own_layout([run(), run("er-fifo", kind=kind)])[0].metrics]
        for kind in ("regular", "irregular")
    )
    assert even == [metric.label for metric in (CA, FA, CA_UPTO, FORGETTING)]
    assert uneven == even + [metric.label for metric in PER_IMAGE]


def test_settings_in_row_names_have_a_fixed_order() -> None:
    layout, _ = own_layout([run(), run(passes=1, lr=0.07, momentum=0.5)])
    assert "climb, lr = 0.07, momentum = 0.5, passes = 1" in [row.label for row in layout.rows]


def test_rows_are_named_after_what_varies() -> None:
    found = [run(), run(preset="paper", lr=0.1), run(lr=0.05, preset="paper"), run(seed=1)]
    layout, _ = own_layout(found)
    assert [row.label for row in layout.rows] == [
        "climb (default)",
        "climb (paper), lr = 0.05",
        "climb (paper), lr = 0.1",
    ]


def names(found: list[FinishedRun]) -> list[str]:
    return [row.label for row in own_layout(found)[0].rows]


def test_a_row_names_differences_from_the_recipe() -> None:
    """A run with a fault, another rate or other views is not the method, even where nothing else stands beside it."""
    assert names([run(), run("cla-e"), run("osiris-r"), run("iid")]) == ["iid", "cla-e", "climb", "osiris-r"]
    assert names([run(lr=0.1), run("cla-e")]) == ["cla-e", "climb, lr = 0.1"]
    assert names([run(augment_per_batch=True)]) == ["climb, augment_per_batch = True"]
    assert names([run("osiris-r", views="objective")]) == ["osiris-r, views = simclr"]
    assert names([run(views="simclr")]) == ["climb"]  # SimCLR's own
    assert names([run(objective="simsiam", lr=0.2, alignment_weight=0.1)]) == ["climb (simsiam)"]
    assert names([run(objective="simsiam", lr=0.3, alignment_weight=0.1)]) == ["climb (simsiam), lr = 0.3"]
    assert names([run(capacity=500)]) == ["climb, memory.capacity = 500"]  # the centroids follow it


def evaluated(found: FinishedRun, shown: str, **asked: Any) -> FinishedRun:
    """The same run, evaluated as asked; ``shown`` is the network whose numbers it has."""
    config = {**found.config, "evaluation": {**found.config["evaluation"], **asked}}
    return replace(found, result={**found.result, "evaluated": shown}, config=config)


def test_additional_probes_do_not_split_a_row() -> None:
    plain, more = evaluated(run(), "student"), evaluated(run(seed=1), "student", knn=True, ridge=True, network="both")
    assert names([plain, more]) == ["climb"]
    teacher = evaluated(run(), "teacher", network="teacher")
    assert names([plain, teacher]) == ["climb, evaluation.network = student", "climb, evaluation.network = teacher"]


def test_a_method_that_is_not_installed_here_keeps_its_name() -> None:
    guest = run(lr=0.1)
    guest.config["learner"]["method"] = guest.result["method"] = "a-guest"
    assert names([guest]) == ["a-guest"]


@pytest.mark.parametrize("against", [None, "paper"])
def test_a_paper_table_notes_differences_from_the_recipe(against: Literal["paper"] | None) -> None:
    def note(layout: str, *found: FinishedRun) -> list[str]:
        shape = find_layout(layout)
        notes = build_table(shape, place(shape, found)[0], against=against).notes
        return [said for said in notes if said.startswith("not the recipe's settings")]

    plain = (run(preset="paper"), run("osiris-r", preset="paper"), run("minred", preset="paper"))
    assert note("table-regular", *plain) == []
    changed = (run(preset="paper", lr=0.1), run("osiris-r", preset="paper", lr=0.05, views="objective"))
    assert note("table-regular", *changed) == [
        "not the recipe's settings: CLIMB, lr = 0.1 (there 0.3); "
        "Osiris-R, lr = 0.05 (there 0.03), views = simclr (there common)"
    ]
    weaker = run(preset="paper", alignment_weight=0.1)
    assert note("table-pruning", weaker) == ["not the recipe's settings: Anchor, alignment_weight = 0.1 (there 2.0)"]
    # The table of ablations has every row at CLIMB's rates.
    assert note("table-ablation", run("finetune", preset="paper", lr=0.3)) == []
    own = run("finetune", preset="paper")
    assert note("table-ablation", own) == ["not the recipe's settings: SSL, lr = 0.03 (there 0.3)"]
    # What a row is about is not said again.
    assert note("table-faults", run(preset="paper", augment_per_batch=True)) == []
    assert note("table-sensitivity-update", run(preset="paper", ema_decay=0.99)) == []


def test_a_setting_has_one_note_and_a_varied_capacity_none() -> None:
    def note(layout: str, found: FinishedRun) -> list[str]:
        shape = find_layout(layout)
        (placed,) = place(shape, [replace(found, result={**found.result, "memory_bytes": 1})])[0]
        table = build_table(shape, [placed], against="paper")
        assert any(cell.paper for cell in table.cells.values())
        return [said for said in table.notes if said.startswith("not the")]

    assert note("table-regular", run(preset="paper", passes=4)) == ["not the paper's setting: passes 4 (there 3)"]
    small = run(
        preset="paper", dataset="imagenet100", capacity=1000, memory={"stm_centroids": 100, "ltm_centroids": 24}
    )
    assert note("table-sensitivity-architecture", small) == []


def test_a_recipe_of_another_dataset_is_ignored() -> None:
    demo = get_recipe("demo")
    assert started_from(demo) == demo.learner
    assert started_from(replace(demo, data=DataConfig(dataset="cifar100"))) is None
    assert started_from(replace(demo, recipe="no such recipe")) is None


def test_sizes_are_those_of_the_recipe_a_run_started_from() -> None:
    demo, tiny = get_recipe("demo"), configure(Request(scale="tiny"), seed=0, tasks=20)
    for config in (demo, tiny):
        assert names([replace(run(dataset="synthetic"), config=to_dict(config.resolved()))]) == ["climb"]


def test_a_method_with_an_objective_of_its_own_is_not_named_after_the_configured_one() -> None:
    found = names([run(), run("osiris-r"), run("climb", objective="vicreg")])
    assert found == ["climb (simclr)", "climb (vicreg), lr = 0.3", "osiris-r"]


def test_published_runs_of_a_recipe_keep_their_methods_name() -> None:
    paper = find_runs([RESULTS / "cifar100-20-paper", *(RESULTS / "cifar100-20-methods").glob("*-paper-*")])
    bound_first_unbounded_last = {"iid": 0, "pcmc": 2}
    methods = {found.result["method"] for found in paper}
    assert names(paper) == sorted(methods, key=lambda name: (bound_first_unbounded_last.get(name, 1), name))
    assert names(find_runs([RESULTS / "cifar100-20-default"])) == ["climb"]
    assert names(find_runs([RESULTS / "cifar100-20-faults" / "batch-views-0"])) == ["climb, augment_per_batch = True"]


def test_seeds_share_a_row_and_datasets_have_their_own_columns() -> None:
    layout, placed = own_layout([run(seed=0), run(seed=1), replace(run(dataset="cifar10"))])
    assert layout.columns == ("cifar10, 20 tasks", "cifar100, 20 tasks")
    cell = build_table(layout, placed, mix=True).cell("climb", "cifar100, 20 tasks", "FA")
    assert cell is not None
    assert (cell.mean, cell.n) == (40.5, 2)


def test_presets_are_not_averaged_in_the_table_of_faults() -> None:
    shape = find_layout("table-faults")
    found = [run(preset=preset, seed=seed, embed_mode="train") for seed, preset in enumerate(("paper", "default"))]
    placed, left = place(shape, found)
    assert ([item.row for item in placed], left) == (["+ train-embedding"] * 2, [])
    with pytest.raises(InputError, match="different presets: default, paper"):
        build_table(shape, placed)
