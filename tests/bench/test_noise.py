"""Repeats: runs that differ only by rounding, and the noise that they show."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from climb.bench.arrange import own_layout
from climb.bench.collect import FinishedRun, find_runs
from climb.bench.executors.job import Outcomes
from climb.bench.grids import Request, build_grid
from climb.bench.layouts import FA
from climb.bench.noise import measure_noise, split_repeats
from climb.bench.plan import make_plan
from climb.bench.render import FORMATS, render
from climb.bench.scheduler import publish_each, run_jobs
from climb.bench.tables import build_table
from climb.cli import run_command
from climb.errors import InputError
from climb.methods import choose_method
from climb.nets import move_weights
from climb.session import execute
from climb.settings.config import DataConfig, Execution, LearnerConfig, RunConfig, from_dict, to_dict
from climb.settings.presets import apply_preset


def run(method: str, value: float, *, seed: int = 0, repeat: int = 0) -> FinishedRun:
    learner = choose_method(apply_preset(LearnerConfig(), "default"), method)
    config = RunConfig(
        recipe="cifar100-20", seed=seed, repeat=repeat, data=DataConfig(dataset="cifar100"), learner=learner
    )
    result = {
        "seed": seed, "tasks": 20, "dataset": "cifar100", "method": method, "preset": "default", "cbp": 1000,
        "final_accuracy": value, "config_hash": config.config_hash(),
    }  # fmt: skip
    return FinishedRun(path=Path(f"{method}-{seed}-{repeat}"), result=result, config=to_dict(config.resolved()))


RUNS = [
    run("climb", 50.0),
    run("climb", 52.0, repeat=1),
    run("climb", 54.0, repeat=2),
    run("climb", 60.0, seed=1),
    run("er-fifo", 49.0),
    run("er-fifo", 59.0, seed=1),
    run("er-fifo", 59.0, seed=1, repeat=1),
    run("lump", 30.0),
]


def test_repeats_are_no_seeds() -> None:
    plain, repeats = split_repeats(RUNS)
    assert [(each.result["method"], each.result["seed"]) for each in plain] == [
        ("climb", 0), ("climb", 1), ("er-fifo", 0), ("er-fifo", 1), ("lump", 0),
    ]  # fmt: skip
    assert [len(group) for group in repeats] == [3, 2]


def test_noise_is_pooled_over_configurations() -> None:
    noise = measure_noise(split_repeats(RUNS)[1], FA)
    assert noise is not None
    assert noise.std == pytest.approx(((2 * 4 + 1 * 0) / 3) ** 0.5)
    assert (noise.runs, noise.configurations) == (5, 2)
    assert measure_noise([], FA) is None


def test_a_table_states_the_noise_and_marks_what_is_below_it() -> None:
    plain, repeats = split_repeats(RUNS)
    layout, placed = own_layout(plain)
    table = build_table(layout, placed, repeats=repeats)
    marked = {row for (row, _, metric), cell in table.cells.items() if metric == "FA" and cell.within_noise}
    assert marked == {"er-fifo"}
    noise = "repeat noise, the standard deviation of runs that differ only by rounding: "
    assert f"{noise}FA 1.63 (5 runs of 2 configurations)" in table.notes
    assert "~: below the repeat noise of its difference from the best" in table.notes
    for form in FORMATS:
        text = render(table, form)
        assert ("within_noise" if form == "csv" else r"\sim" if form == "latex" else " ~") in text
        assert render(build_table(layout, placed), form).count("repeat") == 0


def test_the_first_weights_differ_by_rounding_alone() -> None:
    layer = torch.nn.Linear(50, 50)
    start = layer.weight.detach().clone()
    move_weights(layer, repeat=0, seed=0)
    assert torch.equal(layer.weight, start)
    move_weights(layer, repeat=1, seed=0)
    moved = layer.weight.detach().clone()
    assert 0 < ((moved - start).abs() / start.abs()).max() < 2.5e-7
    again = torch.nn.Linear(50, 50)
    again.load_state_dict({"weight": start, "bias": layer.bias})
    move_weights(again, repeat=2, seed=0)
    assert not torch.equal(again.weight, moved)


def test_repeats_have_an_identity_of_their_own(tiny_config: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = tiny_config()
    older = to_dict(config)
    del older["repeat"]
    assert from_dict(RunConfig, older).config_hash() == config.config_hash()
    results = []
    for repeat in (0, 1, 1):
        own = replace(config, repeat=repeat)
        results.append(execute(own, Execution(device="cpu"), tmp_path / f"{len(results)}"))
    assert results[0]["config_hash"] != results[1]["config_hash"] == results[2]["config_hash"]
    models = [(tmp_path / str(number) / "model.safetensors").read_bytes() for number in range(3)]
    assert models[0] != models[1]
    assert models[1] == models[2]


def test_a_grid_with_repeats(here: Callable[..., Outcomes], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = build_grid("table-ablation", Request(scale="tiny", methods=("climb", "finetune"), seeds=(3, 4), repeats=2))
    assert (len(grid.entries), len(grid.repeats)) == (4, 4)
    assert {entry.config.seed for entry in grid.repeats} == {3}
    plan = make_plan([grid], tmp_path)
    assert len(plan.runs) == 8
    assert sum("repeat" in planned.label for planned in plan.runs.values()) == 4
    run_jobs(plan.jobs(Execution(device="cpu")), here)
    ((_, table),) = publish_each([grid], plan.refreshed(), tmp_path, mix=True)
    assert not isinstance(table, InputError)
    assert all(cell.n == 2 for cell in table.cells.values())
    assert any(note.startswith("repeat noise") for note in table.notes)
    capsys.readouterr()
    assert run_command(["table", str(tmp_path / "runs"), "--layout", "table-ablation", "--extend", "--mix"]) == 0
    assert "repeat noise" in capsys.readouterr().out
    alone = [str(found.path) for found in find_runs([tmp_path / "runs"]) if found.config["repeat"]]
    assert run_command(["table", *alone]) == 2
    assert "repeats alone" in capsys.readouterr().err
    with pytest.raises(InputError, match="repeats is at least 0"):
        Request(repeats=-1)


def test_a_clash_names_the_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def write(name: str, **changes: Any) -> None:
        found = run("climb", 50.0)
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps({**found.result, **changes}))
        (tmp_path / name / "config.json").write_text(json.dumps({"config": found.config}))

    write("one")
    write("other", final_accuracy=51.0)
    assert run_command(["table", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path / "one") in said
    assert str(tmp_path / "other") in said
