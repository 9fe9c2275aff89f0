"""The grid search: every combination, ranked by held-out images."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from climb.bench.executors import Executor
from climb.bench.plan import make_plan
from climb.bench.scheduler import run_jobs
from climb.bench.tuning import parse_over, rank, tuning_grid
from climb.errors import InputError
from climb.nets import build_network
from climb.runs.run_file_checks import read_object, write_object
from climb.settings.config import Execution, RunConfig

MakeConfig = Callable[..., RunConfig]


def test_settings_by_name_and_by_symbol() -> None:
    over = parse_over(["lr=0.1,0.3", "lambda=2", "M=4,6", "prune=anchor,selective", "train_aligner=false", "L=5"])
    assert over == {
        "lr": (0.1, 0.3),
        "alignment_weight": (2.0,),
        "images_per_centroid": (4, 6),
        "prune": ("anchor", "selective"),
        "train_aligner": (False,),
        "stm_centroids": (5,),
    }


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "nothing to tune"),
        (["lr"], "NAME=VALUE"),
        (["lr="], "NAME=VALUE"),
        (["lrr=0.1"], "did you mean 'lr'"),
        (["lr=a"], "lr takes numbers; given 'a'"),
        (["M=1.5"], "images_per_centroid takes whole numbers"),
        (["train_aligner=maybe"], "true or false"),
        (["lambda=1", "alignment_weight=2"], "twice"),
        (["method=climb"], "unknown setting 'method'"),
    ],
)
def test_invalid_settings_are_rejected(texts: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_over(texts)


def test_weights_are_read_for_every_combination(tiny_config: MakeConfig, tmp_path: Path) -> None:
    config = tiny_config()
    network = build_network(config.learner.backbone, config.learner.image_size, generator=torch.Generator())
    torch.save(network.encoder.state_dict(), tmp_path / "start.pth")
    over = parse_over([f"weights=none,{tmp_path / 'start.pth'}"])
    digests = [entry.config.learner.weights_sha256 for entry in tuning_grid(config, over, seeds=(0,)).entries]
    assert digests[0] is None
    assert len(digests[1] or "") == 64
    with pytest.raises(InputError, match=r"weights '.*nothing\.pth' do not exist"):
        tuning_grid(config, parse_over([f"weights={tmp_path / 'nothing.pth'}"]), seeds=(0,))


def test_an_invalid_combination_is_rejected_before_any_run(tiny_config: MakeConfig) -> None:
    with pytest.raises(InputError, match=r"K \* M \+ L <= N"):
        tuning_grid(tiny_config(), {"images_per_centroid": (50,)}, seeds=(0,))
    with pytest.raises(InputError, match="prune"):
        tuning_grid(tiny_config(), {"prune": ("sideways",)}, seeds=(0,))
    with pytest.raises(InputError, match="prune 'anchor' changes nothing in method 'er-fifo'"):
        tuning_grid(tiny_config(method="er-fifo"), {"prune": ("anchor",)}, seeds=(0,))


def test_the_ranking_is_by_validation_accuracy(tiny_config: MakeConfig, here: Executor, tmp_path: Path) -> None:
    config, over = tiny_config(method="er-fifo"), parse_over(["lr=0.01,0.3", "b_s=10"])
    grid = tuning_grid(config, over, seeds=(0, 1))
    plan = make_plan([grid], tmp_path)
    assert len(plan.runs) == 4
    run_jobs(plan.jobs(Execution(device="cpu")), here, metric="validation_accuracy")
    # Test accuracies that would turn the ranking round, were they looked at.
    for number, run in enumerate(plan.runs.values()):
        path = run.folder / "result.json"
        result = read_object(path)
        low = run.config.learner.lr == 0.01
        result |= {"validation_accuracy": (20.0 if low else 10.0) + number, "final_accuracy": 0.0 if low else 99.0}
        write_object(path, result)
    best, other = rank(grid, plan, over)
    assert best.settings == {"lr": 0.01, "stream_batch": 10}
    assert best.seeds == 2
    assert (best.validation_accuracy, other.validation_accuracy) == (21.0, 12.0)


def test_nearly_equal_values_are_ranked_separately(tiny_config: MakeConfig, tmp_path: Path) -> None:
    over = parse_over(["tau_ema=0.9999999,0.9999998"])
    grid = tuning_grid(tiny_config(), over, seeds=(0,))
    assert [row.label for row in grid.layout.rows] == ["ema_decay 0.9999999", "ema_decay 0.9999998"]
    assert [len(one.folders) for one in rank(grid, make_plan([grid], tmp_path), over)] == [1, 1]


def test_combinations_without_a_run_come_last(tiny_config: MakeConfig, here: Executor, tmp_path: Path) -> None:
    over = parse_over(["lr=0.01,0.3"])
    grid = tuning_grid(tiny_config(method="er-fifo"), over, seeds=(0,))
    plan = make_plan([grid], tmp_path)
    run_jobs(plan.jobs(Execution(device="cpu"))[1:], here)
    first, last = rank(grid, plan, over)
    assert (first.settings, first.seeds) == ({"lr": 0.3}, 1)
    assert (last.settings, last.seeds, last.validation_accuracy) == ({"lr": 0.01}, 0, None)


def test_incomplete_combinations_come_after_complete_ones(tiny_config: MakeConfig, tmp_path: Path) -> None:
    """A rate at which most seeds diverge is not the best for the luck of one."""
    over = parse_over(["lr=0.1,3.0"])
    grid = tuning_grid(tiny_config(), over, seeds=(0, 1))
    plan = make_plan([grid], tmp_path)
    for accuracy, run in zip((50.0, 95.0, 30.0), plan.runs.values(), strict=False):  # seed 1 of the second one failed
        run.folder.mkdir(parents=True)
        found = {"config_hash": run.config.config_hash(), "dataset": "synthetic", "method": "climb", "tasks": 2}
        found |= {"seed": run.config.seed, "validation_accuracy": accuracy}
        (run.folder / "result.json").write_text(json.dumps(found))
    ranked = [(one.settings["lr"], one.validation_accuracy, one.seeds) for one in rank(grid, plan, over)]
    assert ranked == [(0.1, 40.0, 2), (3.0, 95.0, 1)]


def test_ranking_needs_validation_images(tiny_config: MakeConfig, here: Executor, tmp_path: Path) -> None:
    over = parse_over(["lr=0.01"])
    grid = tuning_grid(tiny_config(method="er-fifo", train_per_class=9), over, seeds=(0,))
    plan = make_plan([grid], tmp_path)
    run_jobs(plan.jobs(Execution(device="cpu")), here)
    with pytest.raises(InputError, match="too small to hold out"):
        rank(grid, plan, over)
