"""Configurations: identity, round trip, refusal."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from climb.errors import InputError
from climb.runs.run_file_checks import read_object
from climb.settings.config import (
    DataConfig,
    EvaluationConfig,
    Execution,
    LearnerConfig,
    MemoryConfig,
    RunConfig,
    StreamConfig,
    check_learner,
    from_dict,
    to_dict,
)
from climb.settings.fields import settings_of
from climb.settings.recipes import RECIPES, get_recipe


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_round_trip_through_json(name: str) -> None:
    config = get_recipe(name, preset="paper")
    again = from_dict(RunConfig, json.loads(json.dumps(to_dict(config))))
    assert again == config
    assert again.config_hash() == config.config_hash()


def test_the_hash_sees_every_field() -> None:
    """Change each leaf in turn: no setting may be forgotten by the identity of a run."""
    base = to_dict(RunConfig())

    def leaves(node: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        return [
            found
            for key, value in node.items()
            for found in (leaves(value, (*path, key)) if isinstance(value, dict) and value else [(*path, key)])
        ]

    hashes = {RunConfig().config_hash()}
    paths = leaves(base)
    for path in paths:
        changed = json.loads(json.dumps(base))
        node = changed
        for key in path[:-1]:
            node = node[key]
        value = node[path[-1]]
        number = value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        node[path[-1]] = {"other": 1} if isinstance(value, dict) else (value or 0) + 7 if number else "another value"
        hashes.add(from_dict(RunConfig, changed).config_hash())
    # A recipe is a name for people, the size of the images is the learner's, and this dataset has one normalisation.
    silent = {("recipe",), ("data", "image_size"), ("data", "normalisation")}
    assert len(hashes) == len(paths) + 1 - len(silent)
    assert ("learner", "memory", "capacity") in paths


def test_the_hash_is_of_values_and_leaves_execution_out() -> None:
    assert RunConfig().config_hash() == RunConfig(seed=0, learner=LearnerConfig(lr=0.3)).config_hash()
    assert len(RunConfig().config_hash()) == 16
    assert not set(to_dict(Execution())) & set(to_dict(RunConfig()))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sead": 1}, "unknown key of RunConfig 'sead'; did you mean 'seed'"),
        ({"learner": {"learning_rate": 1}}, "unknown key of LearnerConfig 'learning_rate'"),
        ({"learner": {"memory": {"capcity": 1}}}, "unknown key of MemoryConfig 'capcity'; did you mean 'capacity'"),
    ],
)
def test_unknown_keys_are_refused(data: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_dict(RunConfig, data)


def test_configurations_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        RunConfig().seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("capacity", "long_term", "short_term"),
    [(2500, 60, 100), (5000, 120, 100), (500, 12, 20), (1000, 24, 40), (100, 2, 4), (10000, 240, 100)],
)
def test_centroids_scale_with_capacity(capacity: int, long_term: int, short_term: int) -> None:
    memory = MemoryConfig(capacity=capacity)
    assert (memory.long_term, memory.short_term, memory.images_per_centroid) == (long_term, short_term, 30)
    given_sizes = replace(memory, ltm_centroids=7, stm_centroids=9)
    assert (given_sizes.long_term, given_sizes.short_term) == (7, 9)


@given(capacity=st.integers(min_value=21, max_value=100_000))
def test_scaled_sizes_always_fit(capacity: int) -> None:
    memory = MemoryConfig(capacity=capacity)
    fits = memory.long_term * memory.images_per_centroid + memory.short_term <= capacity
    assert fits == (capacity >= 31 or memory.long_term == 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stream_batch": 0}, "stream_batch must be at least 1; given 0"),
        ({"replay_batch": 0}, "replay_batch must be at least 1; given 0"),
        ({"passes": -1}, "passes must be at least 1; given -1"),
        ({"memory": MemoryConfig(capacity=0)}, "capacity must be at least 1; given 0"),
        ({"memory": MemoryConfig(images_per_centroid=1)}, "images_per_centroid must be at least 2; given 1"),
        ({"replay_batch": 1251}, "replay_batch must be at most half of capacity: 1251 > 2500 / 2"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"lr": float("nan")}, "lr must be above 0"),
        ({"lr": float("inf")}, "lr must be above 0 and finite"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"alignment_weight": -0.1}, "alignment_weight must be at least 0"),
        ({"alignment_weight": float("nan")}, "alignment_weight must be at least 0"),
        ({"momentum": 1.0}, r"momentum must be at least 0 and below 1; given 1\.0$"),
        ({"weight_decay": -1.0}, r"weight_decay must be at least 0 and finite; given -1\.0$"),
        ({"ema_decay": 1.1}, r"ema_decay must be in 0\.\.1"),
        ({"ema_decay": float("nan")}, r"ema_decay must be in 0\.\.1"),
        ({"image_size": 7}, "image_size must be at least 8; given 7"),
    ],
)
def test_impossible_values_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_learner(replace(LearnerConfig(), **changes))


def test_values_at_the_edge_are_allowed() -> None:
    edge = LearnerConfig(replay_batch=1250, passes=1, stream_batch=1, ema_decay=0.0, alignment_weight=0.0, image_size=8)
    check_learner(edge)
    check_learner(LearnerConfig(ema_decay=1.0))


def test_a_younger_setting_does_not_change_who_a_run_is() -> None:
    """Runs that were begun before a setting existed are continued, and found by their hash."""
    folder = Path(__file__).parents[2] / "results" / "cifar100-20-methods" / "minred-paper-0"
    written = read_object(folder / "config.json")
    assert "swapped_refresh" not in written["config"]["learner"]
    config = from_dict(RunConfig, written["config"])
    assert config.config_hash() == written["config_hash"]
    other = replace(config, learner=replace(config.learner, swapped_refresh=True))
    assert other.config_hash() != written["config_hash"]


@pytest.mark.parametrize(
    "section", [RunConfig, DataConfig, StreamConfig, LearnerConfig, MemoryConfig, EvaluationConfig]
)
def test_an_added_setting_is_neutral_where_it_is_missing(section: type) -> None:
    added = {name: declared.added for name, declared in settings_of(section).items() if declared.is_added}
    expected = {LearnerConfig: {"views", "swapped_refresh", "weights", "weights_sha256"}, DataConfig: {"normalisation"}}
    assert added.keys() == expected.get(section, set())
    older = from_dict(section, {})
    assert {name: getattr(older, name) for name in added} == added
