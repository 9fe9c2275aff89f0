"""Tables of the paper with further methods, other numbers of tasks, and two datasets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from climb.bench.arrange import extended, own_layout, place
from climb.bench.collect import FinishedRun
from climb.bench.layouts import LAYOUTS, find_layout, with_upto
from climb.bench.side_by_side import side_by_side
from climb.bench.tables import build_table
from climb.cli import run_command
from climb.methods import choose_method
from climb.settings.config import DataConfig, LearnerConfig, RunConfig, StreamConfig, to_dict
from climb.settings.presets import apply_preset


def run(
    method: str,
    value: float = 40.0,
    *,
    tasks: int = 20,
    dataset: str = "cifar100",
    kind: str = "regular",
    **stream: Any,
) -> FinishedRun:
    learner = choose_method(apply_preset(LearnerConfig(), "paper"), method)
    config = RunConfig(
        data=DataConfig(dataset=dataset), stream=StreamConfig(kind=kind, tasks=tasks, options=stream), learner=learner
    )
    result = {
        "seed": 0, "tasks": tasks, "dataset": dataset, "method": method, "preset": "paper", "final_accuracy": value,
        "continual_accuracy": value - 5, "continual_accuracy_upto": value + 5, "config_hash": config.config_hash(),
        "cbp": 1000 * (1 + len(dataset)),
    }  # fmt: skip
    return FinishedRun(path=Path(f"{method}-{tasks}"), result=result, config=to_dict(config.resolved()))


def write(folder: Path, runs: list[FinishedRun]) -> Path:
    for number, found in enumerate(runs):
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "result.json").write_text(json.dumps(found.result))
        (folder / str(number) / "config.json").write_text(json.dumps({"config": found.config}))
    return folder


def test_further_methods_and_numbers_of_tasks_get_a_place() -> None:
    runs = [run("climb"), run("climb-fifo"), run("climb", tasks=5), run("cla-e", kind="irregular")]
    layout = find_layout("table-regular")
    assert [placed.row for placed in place(layout, runs)[0]] == ["CLIMB"]
    longer = extended(layout, runs)
    placed, rest = place(longer, runs)
    assert [(each.row, each.column) for each in placed] == [
        ("CLIMB", "20 tasks"), ("climb-fifo", "20 tasks"), ("CLIMB", "5 tasks"),
    ]  # fmt: skip
    assert rest == runs[3:]
    assert longer.columns == ("5 tasks", "20 tasks", "50 tasks", "100 tasks")
    assert extended(layout, runs[:1]) == layout


def test_two_datasets_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run(method, value, dataset=name) for name in ("cifar100", "imagenet100") for method, value in
            (("climb", 44.0), ("cla-e", 41.0))]  # fmt: skip
    layout = find_layout("table-regular")
    tables = {
        name: build_table(layout, place(layout, [each for each in runs if each.result["dataset"] == name])[0])
        for name in ("cifar100", "imagenet100")
    }
    both = side_by_side(tables)
    assert [metric.label for metric in both.layout.metrics][::3] == ["cifar100 CA", "imagenet100 CA"]
    cell = both.cell("CLIMB", "20 tasks", "imagenet100 FA")
    assert cell is not None
    assert (cell.mean, cell.bold) == (44.0, True)
    folder = write(tmp_path / "runs", runs)
    assert run_command(["table", str(folder), "--layout", "table-regular", "--against", "paper"]) == 0
    out = capsys.readouterr().out
    assert "cifar100 FA" in out
    assert "44.09" in out  # the paper's values of both
    assert "52.92" in out
    assert run_command(["table", str(folder), "--layout", "table-pruning", "--format", "csv"]) == 0


def test_ca_up_to_is_offered_wherever_there_is_ca(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for layout in LAYOUTS.values():
        labels = [metric.label for metric in with_upto(layout).metrics]
        assert ("CA" in labels) == ("CA up-to" in labels)
    folder = write(tmp_path, [run("climb"), run("finetune")])
    assert run_command(["table", str(folder), "--layout", "table-ablation", "--upto", "--mix"]) == 0
    assert "CA up-to" in capsys.readouterr().out


def test_other_runs_need_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path, [run("climb", tasks=2), run("lump", tasks=2)])
    assert run_command(["table", str(folder), "--layout", "table-regular"]) == 2
    assert "give --extend" in capsys.readouterr().err
    assert run_command(["table", str(folder), "--layout", "table-regular", "--extend"]) == 0
    out = capsys.readouterr().out
    assert "2 tasks" in out
    assert "lump" in out


def test_streams_with_other_options_have_columns_of_their_own() -> None:
    orders = [run("climb", kind="domain", tasks=4, domains=order) for order in ("photo,sketch", "sketch,photo")]
    layout, placed = own_layout(orders)
    assert layout.columns == ("4 domain tasks, domains photo,sketch", "4 domain tasks, domains sketch,photo")
    assert len({each.column for each in placed}) == 2
    alone, _ = own_layout([orders[0], replace(orders[0])])
    assert alone.columns == ("4 domain tasks",)
