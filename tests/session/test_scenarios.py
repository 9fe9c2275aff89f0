"""Every scenario that lists its images: a run, its result, its replay, and a stop at any mini-batch."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from climb.cli import run_command
from climb.engine import Engine, Observation
from climb.runs.run_file_checks import read_object
from climb.session import Interrupted, execute, experiment
from climb.settings.config import Execution, RunConfig

Fill = Callable[..., Path]
SMALL: dict[str, Any] = {
    "backbone": "micro", "image_size": 16, "replay_batch": 8, "capacity": 40, "passes": 1, "probe_epochs": 3,
    "images_per_centroid": 5,
}  # fmt: skip
SCENARIOS: dict[str, dict[str, Any]] = {
    "domain": {"domains": "sketch,photo"},
    "recurring": {"tasks": 2, "return_share": 0.4},
    "long-tailed": {"tasks": 2, "imbalance": 4.0},
    "natural": {"tasks": 3},
    "custom": {"tasks": 2, "order": [[*range(63, -1, -1)]]},
}


@pytest.fixture
def tree(tmp_path: Path, fill: Fill) -> Path:
    """Two domains with two classes of 20 images each, numbered as the camera made them."""
    for place, name in enumerate(["photo/cat", "photo/dog", "sketch/cat", "sketch/dog"]):
        fill(tmp_path / "images" / name, 20, first=1000 * (place // 2) + 20 * (place % 2))
    return tmp_path / "images"


@pytest.fixture
def execution(tree: Path) -> Execution:
    return Execution(device="cpu", data_root=str(tree))


def configure(kind: str) -> RunConfig:
    return experiment("demo", dataset="domains", scenario=kind, method="climb", **SMALL, **SCENARIOS[kind])


def stop_after(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    observe, seen = Engine.observe, [0]

    def watched(self: Engine, images: torch.Tensor) -> Observation:
        seen[0] += 1
        if seen[0] == batch:
            os.kill(os.getpid(), signal.SIGTERM)
        return observe(self, images)

    monkeypatch.setattr(Engine, "observe", watched)


@pytest.mark.parametrize("kind", SCENARIOS)
def test_a_stopped_run_continues_to_the_bit_and_its_manifest_replays(
    kind: str, execution: Execution, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(kind)
    result = execute(config, execution, tmp_path / "whole")
    groups = result["groups"]
    assert result["tasks"] == len(groups) >= 2
    assert len(result["accuracy_matrix"]) == len(result["shown"])
    assert all(len(row) == len(groups) for row in result["accuracy_matrix"])
    assert result["final_accuracy"] == pytest.approx(sum(group["final_accuracy"] for group in groups) / len(groups))
    assert all(group["random_encoder_accuracy"] is not None for group in groups)
    assert (tmp_path / "whole" / "report.html").stat().st_size > 0

    with monkeypatch.context() as patch:
        stop_after(3, patch)
        with pytest.raises(Interrupted):
            execute(config, execution, tmp_path / "stopped")
    again = execute(config, execution, tmp_path / "stopped")
    saved = tmp_path / "whole" / "scenario.json"
    replayed = experiment("demo", dataset="domains", method="climb", manifest=str(saved), **SMALL)
    third = execute(replayed, execution, tmp_path / "replayed")
    for name in ("accuracy_matrix", "groups", "shown", "cbp", "memory", "forgetting"):
        assert again[name] == result[name] == third[name], name
    models = [(tmp_path / run / "model.safetensors").read_bytes() for run in ("whole", "stopped")]
    assert models[0] == models[1]
    assert saved.read_text() == (tmp_path / "replayed" / "scenario.json").read_text()


def test_accuracy_is_reported_by_domain(execution: Execution, tmp_path: Path) -> None:
    execute(configure("domain"), execution, tmp_path / "run")
    result = read_object(tmp_path / "run" / "result.json")
    assert [group["name"] for group in result["groups"]] == ["sketch", "photo"]
    first, second = result["groups"]
    matrix = result["accuracy_matrix"]
    assert first["forgetting"] == matrix[0][0] - matrix[1][0] == result["forgetting"]
    assert second["forgetting"] is None
    assert first["continual_accuracy"] == (matrix[0][0] + matrix[1][0]) / 2
    assert "on sketch" in (tmp_path / "run" / "report.html").read_text()


def test_an_order_is_read_from_a_file(tree: Path, execution: Execution, tmp_path: Path) -> None:
    file = tmp_path / "order.txt"
    names = [f"{domain}/cat/{1000 * place + n:05d}.png" for place, domain in enumerate(("photo", "sketch"))
             for n in range(20)]  # fmt: skip
    file.write_text("\n".join([*names[20:], "", *names[:20]]) + "\n\n")
    config = experiment("demo", dataset="domains", scenario="custom", order=str(file), **SMALL)
    assert config.stream.options["order"] == [names[20:], names[:20]]
    result = execute(config, execution, tmp_path / "run")
    assert len(result["shown"]) == 2
    assert [group["name"] for group in result["groups"]] == ["1", "2"]
    file.write_text("0\n2\n1\n")
    assert experiment("demo", scenario="custom", order=str(file)).stream.options["order"] == [[0, 2, 1]]


def test_bad_input_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    for options, message in (
        (("--scenario", "domain"), "scenario 'domain' needs images by domain; give --dataset domains --data FOLDER"),
        (("--scenario", "domain", "--tasks", "3"), "scenario 'domain' decides the number of tasks itself"),
        (("--scenario", "domains"), "unknown scenario 'domains'; did you mean 'domain'"),
        (("--scenario", "recurring", "--imbalance", "3"), "only 'long-tailed' has it"),
        (("--scenario", "recurring", "--return-share", "2"), "return_share must be above 0 and below 1; given 2"),
        (("--scenario", "natural", "--tasks", "4000"), "cannot be cut into 4000 tasks"),
        (("--scenario", "custom"), "needs an order: --order FILE"),
        (("--scenario", "custom", "--order", str(tmp_path / "none.txt")), "cannot read the order"),
        (("--scenario", "custom", "--order", str(tmp_path / "empty.txt")), "is empty; give an index or a file name"),
        (("--manifest", "x", "--returns", "2"), "leave out --returns"),
    ):
        assert run_command(["run", "demo", *options, "--out", str(tmp_path / "run")]) == 2, options
        assert message in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "run").exists()
