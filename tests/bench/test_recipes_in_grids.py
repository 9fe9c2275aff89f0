"""Grids on a recipe, several seeds of one run, and plans that time a few steps."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from climb.bench.grids import Request, build_grid
from climb.bench.timing import Stopwatch
from climb.cli import run_command
from climb.errors import InputError
from climb.resolve import resolve
from climb.session import execute, experiment
from climb.settings.config import Execution, MemoryConfig, RunConfig, StreamConfig
from climb.settings.recipes import RECIPES, get_recipe, recipe

SMALL = (
    "--image-size", "16", "--classes", "4", "--tasks", "2", "--probe-epochs", "2", "--passes", "1", "--replay-batch",
    "8", "--capacity", "60", "--images-per-centroid", "6", "--device", "cpu",
)  # fmt: skip


def test_a_grid_on_a_recipe_has_its_network_memory_and_budget() -> None:
    demo = get_recipe("demo", preset="paper")
    grid = build_grid("table-regular", Request(recipe="demo", tasks=(5, 10), seeds=(0,), methods=("climb", "iid")))
    assert grid.layout.columns == ("5 tasks", "10 tasks")
    first, second = (entry.config for entry in grid.entries if entry.config.learner.method == "climb")
    assert first.config_hash() == demo.config_hash()
    assert second.stream.tasks == 10
    assert {entry.config.learner.backbone for entry in grid.entries} == {"micro"}


def test_sizes_of_memories_are_scaled() -> None:
    grid = build_grid("table-sensitivity-architecture", Request(recipe="demo", tasks=(5,), seeds=(0,)))
    memories = {entry.row: entry.config.learner.memory for entry in grid.entries}
    assert memories["N = 2500"] == memories["K = 60"] == get_recipe("demo").learner.memory
    assert memories["N = 5000"] == replace(memories["N = 2500"], capacity=480, ltm_centroids=20)
    assert memories["L = 50"].stm_centroids == 15
    assert "recipe demo: sizes of memories are the paper's times 240/2500" in grid.layout.note


def test_a_recipe_of_domains_keeps_its_stream() -> None:
    grid = build_grid("table-ablation", Request(recipe="domains", seeds=(0,)))
    assert grid.layout.columns == ("domain",)
    assert all(entry.config.stream == StreamConfig(kind="domain", tasks=0) for entry in grid.entries)
    with pytest.raises(InputError, match="recipe domains has a domain stream; leave --tasks out"):
        build_grid("table-ablation", Request(recipe="domains", tasks=(5,)))


def test_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["bench", "table-regular", "--recipe", "dem"]) == 2
    assert "unknown recipe 'dem'; did you mean 'demo'" in capsys.readouterr().err
    assert run_command(["bench", "table-regular", "--recipe", "demo", "--dataset", "cifar100"]) == 2
    assert "leave --dataset and --scale out" in capsys.readouterr().err
    assert run_command(["run", "demo", "--seeds", "0"]) == 2
    assert "seeds must be at least 1; given 0" in capsys.readouterr().err


def test_rates_of_a_recipe_multiply_those_of_methods() -> None:
    try:

        @recipe(rates=0.1)
        def slow_recipe() -> RunConfig:
            """Small steps."""
            return RunConfig()

        assert get_recipe("slow-recipe").learner.lr == pytest.approx(0.03)
        config = experiment("slow-recipe", method="cla-r")
        assert config.learner.lr == pytest.approx(0.1 * experiment("cifar100-20", method="cla-r").learner.lr)
        assert experiment("slow-recipe", lr=0.2).learner.lr == 0.2
        assert resolve(config, {}).config_hash() == config.config_hash()
        assert get_recipe("cifar100-20").learner.lr == 0.3
    finally:
        RECIPES.pop("slow-recipe", None)


def test_several_seeds_of_one_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", "demo", *SMALL, "--seed", "3", "--seeds", "2", "--out", str(tmp_path / "out")]
    assert run_command(command) == 0
    out = capsys.readouterr().out
    assert "mean ± sample standard deviation, n = 2" in out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["seed-3", "seed-4"]
    assert run_command(command) == 0  # finished: prints the same table
    assert capsys.readouterr().out == out


def test_a_plan_times_a_few_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--recipe", "demo", "--tasks", "5", "--seeds", "1", "--device", "cpu", "--out", str(tmp_path))
    assert run_command(["bench", "table-ablation", *options, "--plan"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"about [\d.]+ (s|min) on cpu \(from a few steps on this machine\)", out), out


def test_the_expected_time_is_about_right(tmp_path: Path) -> None:
    memory = MemoryConfig(capacity=80, stm_centroids=12, ltm_centroids=6, images_per_centroid=6, window=100)
    config = experiment("demo", tasks=2, passes=1, replay_batch=16, probe_epochs=5)
    config = replace(config, learner=replace(config.learner, memory=memory))
    expected = Stopwatch(Execution(device="cpu")).seconds(config)
    assert expected is not None
    taken = execute(config, Execution(device="cpu"), tmp_path / "run")["seconds"]["total"]
    assert taken / 5 < expected < 5 * taken  # other processes may share the machine
