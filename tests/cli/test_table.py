"""`climb table`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climb.settings.config import LearnerConfig, RunConfig, StreamConfig, to_dict

Climb = Callable[..., Any]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three seeds of two methods, as a grid would leave them."""
    for method, start in (("climb", 44.0), ("cla-e", 40.0)):
        for seed in range(3):
            config = RunConfig(seed=seed, stream=StreamConfig(tasks=20), learner=LearnerConfig(method=method))
            folder = tmp_path / "runs" / f"{method}-{seed}"
            folder.mkdir(parents=True)
            result = {
                "seed": seed,
                "tasks": 20,
                "dataset": "cifar100",
                "method": method,
                "preset": "paper" if method == "climb" else "default",
                "final_accuracy": start + seed,
                "continual_accuracy": start - 3 + seed,
                "config_hash": config.config_hash(),
            }
            (folder / "result.json").write_text(json.dumps(result))
            (folder / "config.json").write_text(json.dumps({"config": to_dict(config)}))
    return tmp_path / "runs"


def test_a_table_beside_the_papers(runs: Path, climb: Climb) -> None:
    said = climb("table", runs, "--format", "markdown", "--against", "paper", "--mix")
    assert said.code == 0
    assert (
        "| 20 tasks | CLA-E | 38.00 ± 1.00 | 37.59 ± 1.14 | +0.41 | 41.00 ± 1.00 | 40.95 ± 0.98 | +0.05 |" in said.out
    )
    assert "**45.00** ± 1.00 | **44.09** ± 0.30 | +0.91 |" in said.out
    assert "- different presets: default, paper" in said.out


def test_presets_are_not_mixed_silently(runs: Path, climb: Climb) -> None:
    said = climb("table", runs)
    assert said.code == 2
    assert "different presets: default, paper" in said.err
    assert "--mix" in said.err


def test_a_broken_result_below_a_folder_is_left_out_and_said(
    runs: Path, climb: Climb, caplog: pytest.LogCaptureFixture
) -> None:
    for seed in range(3):
        (runs / f"cla-e-{seed}" / "result.json").unlink()
    (runs / "climb-2" / "result.json").write_text("{")
    said = climb("table", runs)
    assert said.code == 0
    assert "44.50 ± 0.71" in said.out
    (warning,) = caplog.messages
    assert f"skipped {runs / 'climb-2'}: " in warning


def test_plain_text_where_there_is_no_terminal(runs: Path, climb: Climb) -> None:
    said = climb("table", runs / "climb-0", runs / "climb-1")
    assert said.code == 0
    assert "44.50 ± 0.71" in said.out
    assert "\x1b" not in said.out


def test_runs_without_a_place_are_named(runs: Path, climb: Climb) -> None:
    said = climb("table", runs, "--layout", "table-ablation", "--format", "csv")
    assert said.code == 0
    assert said.err.count("no place in table-ablation for") == 3
    assert "climb: mean ± sample standard deviation, n = 3" in said.err  # what the data has no room for
    assert "sample standard deviation" not in said.out
    assert climb("table", runs, "--layout", "table-simsiam").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--test", "wilch"), "did you mean 'welch'"),
        (("--layout", "table-regulr"), "did you mean 'table-regular'"),
    ],
)
def test_names_that_do_not_exist(runs: Path, climb: Climb, arguments: tuple[str, ...], message: str) -> None:
    said = climb("table", runs, *arguments)
    assert said.code == 2
    assert message in said.err


def test_no_runs(climb: Climb) -> None:
    assert "no runs given" in climb("table").err
