"""`climb bench` and `climb tune` as people type them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climb.bench.grids import GRIDS, Request, build_grid, configure
from climb.errors import ClimbError
from climb.runs.run_file_checks import read_object
from climb.settings.recipes import RECIPES

Command = Callable[..., Any]
RESULTS = Path(__file__).parents[2] / "results"
METHODS = RESULTS / "cifar100-20-methods"


def test_without_a_name_the_grids_are_listed(climb: Command) -> None:
    said = climb("bench")
    assert said.code == 0
    assert all(name in said.out for name in GRIDS)


def test_a_plan_of_the_paper(climb: Command, tmp_path: Path) -> None:
    said = climb("bench", "table-regular", "table-forgetting", "--plan", "--device", "cpu", "--out", tmp_path / "out")
    assert said.code == 0
    # 22 rows and columns of 5 seeds; forgetting is free. PCMC trains as much as its memory asks for.
    assert (
        "110 runs (0 done), 110 to do: 4,950,000 stream images, 353,970,000 backward passes, not counting pcmc"
        in said.out
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", GRIDS)
def test_how_much_there_is_to_do_is_said_before_anything_is_done(
    climb: Command, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: object, **__: object) -> None:
        raise ClimbError("the runs begin")

    monkeypatch.setattr("climb.bench.scheduler.run_jobs", begun)
    said = climb("bench", name, "--scale", "tiny", "--device", "cpu", "--out", tmp_path)
    assert said.code == 1
    assert "the runs begin" in said.err
    words = " ".join(said.out.split())
    grid = build_grid(name, Request(scale="tiny"))
    runs = len({entry.config.config_hash() for entry in grid.entries})
    assert re.search(rf"\b{runs} runs? \(0 done\), {runs} to do: {100 * runs:,} stream images, [\d,]+ backward", words)
    assert re.search(r"; about \d+ (s|min|h)\b.* on cpu \(a rough guess", words)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table-reguler",), "did you mean 'table-regular'"),
        (("table-regular", "--methods", "clim"), "did you mean 'climb'"),
        (("table-regular", "--address", "auto"), "--address is for --executor ray"),
        (("table-regular", "--slurm", "a=b"), "--slurm is for --executor slurm"),
        (("table-regular", "--executor", "slurm", "--slurm", "gpu"), "NAME=VALUE"),
        (("table-regular", "--executor", "slurm", "--per-device", "2"), "--per-device is for"),
        (("table-regular", "--per-device", "0"), "at least 1"),
        (("table-regular", "--reuse", "nowhere"), "nowhere"),
        (("table-regular", "--device", "gpu"), "unknown device 'gpu'"),
        (("table-regular", "--seeds", "0"), "seeds must be at least 1"),
    ],
)
def test_bad_input_is_refused_before_any_work(climb: Command, arguments: tuple[str, ...], message: str) -> None:
    said = climb("bench", *arguments)
    assert said.code == 2
    assert message in said.err
    assert not Path("bench").exists()


@pytest.mark.parametrize("command", [("bench", "table-pruning", "--scale", "tiny"), ("tune", "demo", "--over", "lr=1")])
def test_a_file_is_no_place_for_runs(climb: Command, command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    said = climb(*command, "--device", "cpu", "--out", tmp_path / "file")
    assert said.code == 2
    assert "is a file; --out takes a folder" in said.err


def test_published_runs_are_reused_and_their_table_is_not_folded_in_a_log(
    climb: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = ("bench", "table-regular", "--methods", "climb", "cla-e", "--tasks", 20, "--seeds", 1, "--device", "cpu")
    said = climb(*command, "--reuse", RESULTS, "--against", "paper", "--out", tmp_path)
    assert said.code == 0, said.err
    assert "2 runs (2 done), 0 to do" in said.out
    assert re.search(r"CLA-E +43\.84 +(\* +)?37\.59 ± 1\.14 +\+6\.25 +49\.61 +(\* +)?40\.95 ± 0\.98 +\+8\.66", said.out)


def test_seeds_can_begin_at_another_than_the_first(climb: Command, tmp_path: Path) -> None:
    """Seed 4 of the methods whose times are compared has been published, seeds 5 and on have not."""
    command = ("bench", "figure-wallclock", "--tasks", 20, "--device", "cpu", "--reuse", RESULTS, "--out", tmp_path)
    said = climb(*command, "--seeds", 1, "--first-seed", 4, "--plan")
    assert said.code == 0, said.err
    assert "6 runs (6 done), 0 to do" in said.out
    assert "30 runs (0 done), 30 to do" in climb(*command, "--first-seed", 5, "--plan").out  # the paper's five each
    assert "a seed is at least 0; given -1" in climb(*command, "--first-seed", -1, "--plan").err


def test_a_plan_says_which_finished_runs_were_not_made_as_is_asked_for(climb: Command, tmp_path: Path) -> None:
    command = ("bench", "table-regular", "--methods", "climb", "cla-e", "--tasks", 20, "--seeds", 1, "--device", "cpu")
    options = ("--reuse", RESULTS, "--out", tmp_path, "--plan")
    said = climb(*command, *options, "--precision", "float32")
    assert said.code == 0, said.err
    assert "2 finished runs did not use precision float32 but precision bf16; for new runs" in said.out
    assert "did not use" not in climb(*command, *options, "--precision", "bf16").out
    assert "did not use" not in climb(*command, *options).out


def test_runs_that_are_done_but_cannot_be_compared_are_a_failure_and_no_bad_input(
    climb: Command, tmp_path: Path
) -> None:
    published = {"climb": RESULTS / "cifar100-20-paper" / "seed-0", "cla-e": METHODS / "cla-e-paper-0"}
    for name, folder in published.items():
        shutil.copytree(folder, tmp_path / "done" / name)
    costly = tmp_path / "done" / "cla-e" / "result.json"
    result = json.loads(costly.read_text())
    costly.write_text(json.dumps({**result, "cbp": 2 * result["cbp"]}))
    command = ("bench", "table-regular", "--methods", *published, "--tasks", 20, "--seeds", 1, "--device", "cpu")
    options = ("--reuse", tmp_path / "done", "--out", tmp_path / "out")
    said = climb(*command, *options)
    assert said.code == 1
    assert "table-regular: these runs cannot be compared: different budgets of backward passes" in said.err
    assert climb(*command, *options, "--mix").code == 0


def test_tune_refuses_what_it_cannot_tune(climb: Command) -> None:
    for arguments, message in (
        (("demo",), "nothing to tune"),
        (("demo", "--over", "lrr=1"), "did you mean 'lr'"),
        (("demo", "--over", "lr=0.1", "--seeds", "0"), "seeds must be at least 1"),
        (("demo", "--over", "lr=-1"), "lr must be above 0"),
    ):
        said = climb("tune", *arguments)
        assert said.code == 2
        assert message in said.err


@pytest.mark.slow
def test_tune(climb: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RECIPES, "small", lambda: configure(Request(scale="tiny"), seed=0, tasks=20))
    command = ("tune", "small", "--method", "climb-memory-only", "--over", "lr=0.05,0.3", "M=4,6", "--device", "cpu")
    said = climb(*command, "--out", tmp_path)
    assert said.code == 0, said.err
    assert "4 combinations of lr, images_per_centroid" in said.out
    written = json.loads((tmp_path / "ranking.json").read_text())
    assert (written["metric"], written["method"]) == ("validation_accuracy", "climb-memory-only")
    accuracies = [one["validation_accuracy"] for one in written["ranking"]]
    assert accuracies == sorted(accuracies, reverse=True)
    assert len(accuracies) == 4
    assert "final_accuracy" not in json.dumps(written)
    results = [read_object(Path(one["folders"][0]) / "result.json") for one in written["ranking"]]
    assert [result["validation_accuracy"] for result in results] == accuracies
    assert [one["settings"]["lr"] for one in written["ranking"]] == [
        read_object(Path(one["folders"][0]) / "config.json")["config"]["learner"]["lr"] for one in written["ranking"]
    ]
    again = climb(*command, "--out", tmp_path)
    assert again.code == 0
    assert "4 runs (4 done), 0 to do" in again.out


@pytest.mark.slow
def test_a_failed_run_is_listed_and_the_table_printed_all_the_same(
    climb: Command, tmp_path: Path, picture: Callable[..., Path]
) -> None:
    """A dataset that is too small for its tasks: every run fails, the next command tries again."""
    picture(tmp_path / "images" / "a" / "1.png")
    command = ("bench", "table-pruning", "--dataset", "folder", "--data", tmp_path / "images", "--methods", "climb")
    said = climb(*command, "--tasks", 2, "--seeds", 1, "--device", "cpu", "--out", tmp_path / "out")
    assert said.code == 1
    assert re.search(r"failed: Anchor, 2 tasks, seed 0: ", said.out)
    assert "1 of 1 runs are not finished" in said.err
    (error,) = (tmp_path / "out").glob("runs/*/error.txt")
    assert error.stat().st_size > 0
    again = climb(*command, "--tasks", 2, "--seeds", 1, "--device", "cpu", "--out", tmp_path / "out")
    assert "1 run (0 done, 1 failed before), 1 to do" in again.out
