"""Which runs may stand in one table."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from climb.bench.comparable import common_settings, differences, outliers, paper_differences
from climb.bench.tables import PlacedRun

RESULT = {
    "seed": 0,
    "dataset": "cifar100",
    "method": "climb",
    "preset": "paper",
    "evaluated": "student",
    "cbp": 1_000_000,
    "memory_bytes": 1,
    "memory_bounded": True,
    "engine": "eager",
    "precision": "float32",
    "versions": {"device_name": "one", "torch": "2.13"},
}
CONFIG = {
    "data": {"options": {}},
    "stream": {"kind": "regular", "options": {}, "manifest": None},
    "learner": {"image_size": 32, "backbone": "resnet18", "memory": {"capacity": 2500}},
    "evaluation": {"epochs": 100},
}


def run(column: str = "20 tasks", **changes: Any) -> PlacedRun:
    result, config = copy.deepcopy(RESULT), copy.deepcopy(CONFIG)
    for name, value in changes.items():
        target: Any = config if name.split("__")[0] in CONFIG else result
        *path, last = name.split("__")
        for key in path:
            target = target[key]
        target[last] = value
    return PlacedRun(row=f"row of {result['method']}", column=column, result=result, config=config)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dataset": "cifar10"}, "different datasets: cifar10 32 px, cifar100 32 px"),
        ({"data_fingerprint": "2 classes 9"}, "different datasets: cifar100 32 px, cifar100 32 px (2 classes 9)"),
        ({"learner__image_size": 64}, "different datasets: cifar100 32 px, cifar100 64 px"),
        ({"data__options": {"classes": 4}}, "different datasets: cifar100 32 px, cifar100 32 px classes=4"),
        (
            {"data__normalisation": "released"},
            "different datasets: cifar100 32 px, cifar100 32 px with the released constants",
        ),
        ({"stream__kind": "irregular"}, "different streams in 20 tasks: irregular, regular"),
        ({"stream__options": {"cap": 9}}, "different streams in 20 tasks: regular, regular cap=9"),
        ({"stream__manifest": {"tasks": []}}, "different streams in 20 tasks: a saved scenario (2f057bef), regular"),
        ({"preset": "default"}, "different presets: default, paper"),
        ({"evaluated": "teacher"}, "different networks evaluated: student, teacher"),
        ({"evaluation__epochs": 10}, "different probes: linear, 10 epochs, linear, 100 epochs"),
        ({"learner__backbone": "micro"}, "different backbones: micro, resnet18"),
        (
            {"learner__weights": "/a.pth", "learner__weights_sha256": 8 * "abcd"},
            "different backbones: resnet18, resnet18 from weights abcdabcd",
        ),
        ({"learner__memory__capacity": 500}, "different memory capacities: 2500, 500"),
        ({"memory_bounded": False, "method": "pcmc"}, "a memory without bound: row of pcmc"),
        (
            {"cbp": 990_000, "method": "minred"},
            "different budgets of backward passes in 20 tasks: 990,000 (row of minred) and "
            "1,000,000 (row of climb), 1.0% apart",
        ),
    ],
)
def test_each_difference_is_a_reason(change: dict[str, Any], reason: str) -> None:
    assert differences([run(), run(**change)]) == ([reason], [])


def test_outliers_are_named() -> None:
    most, odd = [run(seed=seed) for seed in range(3)], run(seed=7, preset="default", evaluated="teacher")
    runs = [*most, odd]
    assert outliers(runs, runs) == ["row of climb, 20 tasks, seed 7"]
    assert outliers(most, runs) == ["row of climb, 20 tasks, seed 7"]  # also of one not compared
    assert outliers(runs, runs, allowed=["presets", "networks evaluated"]) == []
    assert outliers([most[0], odd], [most[0], odd]) == []  # of two runs, neither is the outlier


def test_budgets_within_half_a_percent_and_in_other_columns_are_one() -> None:
    assert differences([run(), run(cbp=995_500), run("50 tasks", cbp=500_000)]) == ([], [])
    assert differences([run(), run(cbp=995_000)]) == ([], [])  # of the larger one, and no more than that
    assert differences([run(), run(cbp=994_999)]) != ([], [])


def test_a_method_without_memory_has_no_capacity() -> None:
    assert differences([run(), run(memory_bytes=0, learner__memory__capacity=9)]) == ([], [])


def test_what_differs_on_purpose_is_allowed() -> None:
    assert differences([run(), run(learner__memory__capacity=500)], allowed=["memory capacities"]) == ([], [])


def test_the_released_code_may_be_compared_with_one_other_preset() -> None:
    """A table of faults allows it; two readings of the paper in one of its rows would become two seeds."""
    released = run(preset="reference")
    assert differences([run(), released], allowed=["presets"]) == ([], ["presets differ: paper, reference"])
    reasons, _ = differences([run(), run(seed=1, preset="default"), released], allowed=["presets"])
    assert reasons == ["different presets: default, paper"]


def test_saved_scenarios_are_distinguished() -> None:
    first, second = run(stream__manifest={"tasks": [[0], [1]]}), run(stream__manifest={"tasks": [[1], [0]]})
    assert differences([first, first])[0] == []
    written = [run(stream__manifest=dict(keys)) for keys in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])]
    assert differences(written)[0] == []  # in whatever order its file names things
    (reason,), _ = differences([first, second])
    assert reason.startswith("different streams in 20 tasks: a saved scenario (")


def test_each_seed_may_replay_a_scenario_of_its_own() -> None:
    def saved(seed: int, *tasks: int, kind: str = "regular") -> PlacedRun:
        return run(seed=seed, stream__manifest={"kind": kind, "tasks": [list(tasks)]})

    ours, theirs = [saved(0, 1, 2), saved(1, 2, 1)], [saved(0, 1, 2), saved(1, 2, 1)]
    assert differences([*ours, *theirs])[0] == []
    (reason,), _ = differences([*ours, theirs[0], saved(1, 1, 2)])
    assert reason.startswith("different streams in 20 tasks: a saved scenario (")
    assert differences([*ours, run(seed=2)])[0] == ["different streams in 20 tasks: a saved regular scenario, regular"]
    assert differences([*ours, saved(2, 1, kind="blurred")])[0] == [
        "different streams in 20 tasks: a saved blurred scenario, a saved regular scenario"
    ]


def test_a_stream_with_options_is_noted() -> None:
    capped = [run(seed=seed, stream__kind="irregular", stream__options={"cap": 6}) for seed in range(2)]
    assert differences(capped) == ([], ["streams with settings of their own: irregular cap=6"])
    saved = run(stream__manifest={"tasks": []})
    assert differences([saved]) == ([], ["streams with settings of their own: a saved scenario (2f057bef)"])
    assert differences([run()], others=[run(), saved])[1] == [
        "streams with settings of their own: a saved scenario (2f057bef)"
    ]


def test_an_allowed_difference_of_networks_is_noted() -> None:
    found = differences([run(), run(evaluated="teacher")], allowed=["networks evaluated"])
    assert found == ([], ["networks evaluated differ: student, teacher"])


def test_bounds_have_no_budget_but_their_passes_are_noted() -> None:
    ours = run()
    said = "backward passes outside the budget in 20 tasks: row of iid 7"
    assert differences([ours], others=[ours, run(cbp=7, method="iid", memory_bytes=0)]) == ([], [said])
    assert differences([ours], others=[ours, run(cbp=1_004_000, method="iid")]) == ([], [])
    said = "backward passes outside the budget in 20 tasks: row of iid 1,006,000"
    assert differences([ours], others=[ours, run(cbp=1_006_000, method="iid")]) == ([], [said])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dataset": "cifar10"}, "different datasets: cifar10 32 px, cifar100 32 px"),
        ({"preset": "default"}, "different presets: default, paper"),
        ({"evaluation__epochs": 10}, "different probes: linear, 10 epochs, linear, 100 epochs"),
        ({"learner__backbone": "micro"}, "different backbones: micro, resnet18"),
        (
            {"learner__weights": "/a.pth", "learner__weights_sha256": 8 * "abcd"},
            "different backbones: resnet18, resnet18 from weights abcdabcd",
        ),
    ],
)
def test_bounds_share_dataset_preset_probe_and_backbone(change: dict[str, Any], reason: str) -> None:
    ours = run()
    assert differences([ours], others=[ours, run(**change)]) == ([reason], [])


@pytest.mark.parametrize("change", [{"evaluated": "teacher"}, {"learner__memory__capacity": 500}])
def test_bounds_may_differ_otherwise(change: dict[str, Any]) -> None:
    ours = run()
    assert differences([ours], others=[ours, run(**change)]) == ([], [])


def test_an_unbounded_memory_of_an_indicative_row_is_noted() -> None:
    ours, indicative = run(), run(memory_bounded=False, method="pcmc")
    assert differences([ours], others=[ours, indicative]) == ([], ["a memory without bound: row of pcmc"])
    assert differences([indicative], allowed=["memory bounds"]) == ([], ["a memory without bound: row of pcmc"])


def test_an_unbounded_memory_is_rejected_only_beside_bounded_ones() -> None:
    """Seeds of the released code, or two of its settings, can be compared with each other."""
    released = [run(seed=seed, preset="reference", memory_bounded=False) for seed in range(2)]
    assert differences(released) == ([], ["a memory without bound: row of climb"])
    bounded = run(preset="reference", method="cla-e")
    assert differences([*released, bounded]) == (["a memory without bound: row of climb"], [])
    indicative = run(preset="reference", method="pcmc", memory_bounded=False)  # said of it apart, and of no row twice
    said = ["a memory without bound: row of climb"], ["a memory without bound: row of pcmc"]
    assert differences([*released, bounded], others=[*released, bounded, indicative]) == said


def test_memory_bytes_are_noted_if_they_differ() -> None:
    plain = [run(method=name, memory_bytes=7_680_000) for name in ("cla-e", "er-fifo")]
    heavier = [run(method="climb", memory_bytes=8_990_000 + seed, seed=seed) for seed in range(2)]
    minred, none = run(method="minred", memory_bytes=53_160_000), run(method="iid", memory_bytes=0)
    said = (
        "memories take, with embeddings, centroids and similarities: 7.7 MB (row of cla-e, row of er-fifo); "
        "9.0 MB (row of climb); 53 MB (row of minred)"
    )
    assert differences([*plain, *heavier, minred, none]) == ([], [said])
    assert differences([*plain, none]) == ([], [])
    assert differences([*plain, minred], allowed=["memory capacities"]) == ([], [])


def test_methods_with_task_boundaries_are_noted() -> None:
    told = run(method="cassle-r", needs_boundaries=True)
    assert differences([run(needs_boundaries=False), told]) == ([], ["told where tasks end: cassle-r"])


def test_methods_with_other_views_are_noted() -> None:
    plain, other = (run(learner__objective="simclr", learner__views=views) for views in ("simclr", "objective"))
    assert differences([plain], others=[plain, other]) == ([], [])
    osiris = run("50 tasks", method="osiris-r", learner__objective="simclr", learner__views="common")
    assert differences([plain], others=[plain, osiris]) == (
        [],
        ["trained on other views than the objective's: osiris-r (common)"],
    )


def test_common_settings_have_one_note() -> None:
    assert common_settings([run(), run(seed=1)]) == [
        "all runs: cifar100 32 px, resnet18, preset paper, student evaluated"
    ]
    assert common_settings([run(), run(preset="default", evaluated="teacher")]) == [
        "all runs: cifar100 32 px, resnet18"
    ]
    assert common_settings([]) == []


def test_a_rehearsal_has_a_warning() -> None:
    (_, said) = common_settings([PlacedRun(row="r", column="c", result=RESULT, config={**CONFIG, "recipe": "tiny-20"})])
    assert "rehearsal" in said
    assert (
        len(
            common_settings(
                [PlacedRun(row="r", column="c", result=RESULT, config={**CONFIG, "recipe": "tiny-imagenet-20"})]
            )
        )
        == 1
    )


def test_seeds_of_one_cell_need_the_same_settings() -> None:
    reasons, _ = differences([run(learner__lr=0.1), run(seed=1, learner__lr=0.3)])
    assert reasons == ["different settings in row of climb, 20 tasks: lr = 0.1 and 0.3"]
    apart = [run(learner__lr=0.1), run("50 tasks", learner__lr=0.3), run(seed=1, learner__lr=0.1, recipe="other")]
    assert differences(apart) == ([], [])
    presets = [run(preset="paper", learner__lr=0.1), run(seed=1, preset="default", learner__lr=0.3)]
    assert differences(presets)[0] == ["different presets: default, paper"]  # which brings its settings: one reason
    bound = [replace(run(seed=seed, learner__lr=lr), row="bound") for seed, lr in enumerate((0.1, 0.3))]
    assert differences([run()], others=[run(), *bound])[0] == [
        "different settings in bound, 20 tasks: lr = 0.1 and 0.3"
    ]


def test_devices_engines_precisions_and_versions_are_noted() -> None:
    old = {"device_name": "two", "torch": "2.11", "climb": "0.1"}
    other = run(versions=old, engine="captured", precision="bf16", processes=2)
    assert differences([run(processes=1, versions__climb="0.2"), other]) == (
        [],
        [
            "devices differ: one, two",
            "engines differ: captured, eager",
            "precisions differ: bf16, float32",
            "numbers of processes differ: 1, 2",
            "versions of torch differ: 2.11, 2.13",
            "versions of climb differ: 0.1, 0.2",
        ],
    )


def test_different_commits_are_noted() -> None:
    first, second, unknown = run(versions__commit="3f2a91c04d"), run(versions__commit="3f2a91c04d+changes"), run()
    assert differences([unknown, unknown]) == differences([first, first]) == ([], [])
    edited = "code of climb with changes that no commit holds: 3f2a91c04d+changes"
    assert differences([second, first]) == ([], ["code of climb differs: 3f2a91c04d, 3f2a91c04d+changes", edited])
    assert differences([second, second]) == ([], [edited])  # not said to be alike: which changes is not known
    assert differences([unknown, first]) == ([], ["code of climb differs: 3f2a91c04d, unknown"])


def test_columns_may_have_streams_of_their_own() -> None:
    assert differences([run(), run("50 irregular tasks", stream__kind="irregular")]) == ([], [])


def test_differences_from_the_papers_settings_are_noted() -> None:
    assert paper_differences([run(), run(learner__backbone="resnet18", learner__passes=3)]) == []
    small = run(learner__backbone="micro", learner__memory__capacity=500)
    assert paper_differences([run(), small]) == [
        "not the paper's setting: backbone micro (there resnet18); capacity 500 (there 2500)"
    ]
    assert paper_differences([run(preset="default", evaluated="teacher")]) == [
        "not the paper's setting: preset default (there paper); evaluated teacher (there student)"
    ]
    without_memory = run(memory_bytes=0, learner__memory__capacity=500)
    assert paper_differences([without_memory]) == []
    assert paper_differences([run(learner__memory__capacity=500)], allowed=["memory capacities"]) == []
