"""Sizes and budgets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from climb.config import LearnerConfig, MemoryConfig, RunConfig
from climb.errors import InputError
from climb.learn.settings import settle
from climb.learn.sizes import SIZES, size_for, with_budget
from climb.learner import build_engine
from climb.methods import METHODS

NOTHING: dict[str, Any] = {
    "size": "auto", "budget": None, "method": "climb", "preset": "default", "objective": None, "backbone": None,
    "image_size": None, "stream_batch": None, "replay_batch": None, "passes": None, "lr": None,
    "alignment_weight": None, "seed": 0, "device": "cpu",
}  # fmt: skip


def settled(**changes: Any) -> RunConfig:
    return settle(**{**NOTHING, **changes})


@pytest.mark.parametrize("name", SIZES)
def test_every_size_can_be_used(name: str) -> None:
    config = settled(size=name).learner
    size = SIZES[name]
    assert (config.backbone, config.image_size, config.memory.capacity) == (
        size.backbone,
        size.image_size,
        size.capacity,
    )
    assert (config.replay_batch, config.passes) == (size.replay_batch, size.passes)


def test_the_size_goes_by_the_device() -> None:
    assert size_for("auto", torch.device("cpu")) == SIZES["cpu"]
    assert size_for("auto", torch.device("cuda")) == SIZES["gpu"]
    with pytest.raises(InputError, match="did you mean 'edge'"):
        size_for("edgy", torch.device("cpu"))


def memory_bytes(config: LearnerConfig) -> int:
    engine = build_engine(
        config, mean=(0.5,) * 3, std=(0.5,) * 3, seed=0, device=torch.device("cpu"), precision="float32", kind="eager"
    )
    assert engine.parts.memory is not None
    return engine.parts.memory.nbytes


@pytest.mark.parametrize("method", ["climb", "er-fifo", "cla-r", "minred", "scale"])
@pytest.mark.parametrize("budget", ["2MB", "0.5 mb", "0.003GB"])
def test_megabytes_are_kept_and_used(method: str, budget: str) -> None:
    most = {"2MB": 2_000_000, "0.5 mb": 500_000, "0.003GB": 3_000_000}[budget]
    config = settled(method=method, budget=budget, image_size=16).learner
    taken = memory_bytes(config)
    assert 0.97 * most <= taken <= most  # centroids come in whole numbers


def test_images() -> None:
    assert settled(budget=300).learner.memory.capacity == 300
    assert settled(budget="300").learner.memory.capacity == 300


@pytest.mark.parametrize("budget", ["lots", "-3", "2.5", "10TB", "1 2MB"])
def test_a_budget_that_says_nothing(budget: str) -> None:
    with pytest.raises(InputError, match="type a number of images"):
        settled(budget=budget)


@pytest.mark.parametrize("budget", ["100000GB", str(10**13)])
def test_a_budget_beyond_the_machine(budget: str) -> None:
    with pytest.raises(InputError, match=r"GB; this machine has .* GB: give a smaller --budget"):
        settled(budget=budget)


def test_a_budget_without_room() -> None:
    with pytest.raises(InputError, match="no room for an image"):
        settled(budget="0.001MB")
    with pytest.raises(InputError, match="too small"):
        settled(budget=3)


@pytest.mark.parametrize("budget", ["0.05MB", "0.02MB"])
def test_a_memory_without_centroids_may_be_as_small_as_one_likes(budget: str) -> None:
    """The smaller budget has room for fewer images than one centroid has."""
    config = settled(method="er-fifo", budget=budget, image_size=16).learner
    most = {"0.05MB": 50_000, "0.02MB": 20_000}[budget]
    assert most - 3 * 16**2 < memory_bytes(config) <= most
    assert settled(method="er-fifo", budget=3).learner.memory.capacity == 3


def test_replay_shrinks_with_a_small_budget_unless_it_was_asked_for() -> None:
    assert settled(budget=60).learner.replay_batch == 30
    assert settled(budget=60, replay_batch=20).learner.replay_batch == 20
    with pytest.raises(InputError, match="replay_batch must be at most half of capacity"):
        settled(budget=60, replay_batch=40)
    with pytest.raises(InputError, match="replay_batch"):
        settled(replay_batch=0)


def test_choices_reach_the_configuration() -> None:
    config = settled(
        method="cla-e", preset="paper", objective="vicreg", backbone="resnet18", image_size=48, stream_batch=4,
        passes=2, lr=0.01, alignment_weight=0.2, seed=9,
    )  # fmt: skip
    learner = config.learner
    assert (config.seed, config.recipe, config.stream.tasks) == (9, "learn", 0)
    assert (learner.method, learner.preset, learner.objective) == ("cla-e", "paper", "vicreg")
    assert (learner.backbone, learner.image_size, learner.stream_batch, learner.passes) == ("resnet18", 48, 4, 2)
    assert (learner.lr, learner.alignment_weight) == (0.01, 0.2)
    assert config.evaluation.network == "student"
    assert settled(method="cla-r").learner.lr == 0.1  # the method's own


@pytest.mark.parametrize(
    ("method", "reason"), [("iid", "all images at once"), ("cassle-r", "where tasks end"), ("pcmc", "no bound")]
)
def test_methods_for_benchmarks_alone_are_refused(method: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"cannot learn from a stream of one's own: .*{reason}"):
        settled(method=method)


def test_so_is_one_of_somebody_else_by_what_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "theirs", METHODS["cassle-r"])
    with pytest.raises(InputError, match=r"method 'theirs' cannot learn .* where tasks end"):
        settled(method="theirs")


def test_given_centroids_do_not_stand_in_the_way_of_a_budget() -> None:
    config = LearnerConfig(image_size=16, backbone="micro", memory=MemoryConfig(capacity=2500))
    assert with_budget(replace(config, method="climb"), "200").memory.long_term == 5
