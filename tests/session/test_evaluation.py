"""Evaluation looks on: it changes no network, no memory and nobody's random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from climb.evaluation import LinearProbeConfig, Row, knn_accuracy, ridge_accuracy
from climb.methods import choose_method
from climb.runs import RunFolder
from climb.session import Session
from climb.session.evaluation import Evaluator, row_to_json
from climb.session.experiments import open_session
from climb.settings.config import Execution, RunConfig
from climb.state import save_tree

Make = Callable[..., RunConfig]


class Trained:
    """An experiment with an engine that has learned a few mini-batches."""

    def __init__(self, config: RunConfig, execution: Execution, batches: int = 4) -> None:
        session = open_session(config, execution, RunFolder("never-written"), torch.device("cpu"))
        self.engine = session.engine
        self.evaluator = evaluator_of(session)
        self.data = self.evaluator.data
        for batch in islice(session.feed.batches(0), batches):
            assert batch is not None
            self.engine.observe(batch.images)


def evaluator_of(session: Session) -> Evaluator:
    return next(observer for observer in session.observers if isinstance(observer, Evaluator))


def start(config: RunConfig) -> Trained:
    return Trained(config, Execution(device="cpu"))


@pytest.mark.parametrize("preset", ["paper", "default", "reference"])
def test_probing_leaves_everything_as_it_was(make_config: Make, preset: str, tmp_path: Path) -> None:
    run = start(make_config(preset=preset, evaluation={"network": "both", "knn": True, "ridge": True}))
    drawn = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index, union-attr]  # noqa: NPY002
    save_tree(tmp_path / "before", run.engine.state_dict(), kind="test")
    rows = run.evaluator.rows(run.engine, after=0)
    found = run.evaluator.final_probes(run.engine)
    save_tree(tmp_path / "after", run.engine.state_dict(), kind="test")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
    assert torch.equal(torch.get_rng_state(), drawn[0])
    assert np.array_equal(np.random.get_state()[1], drawn[1])  # type: ignore[index]  # noqa: NPY002
    assert run.engine.parts.network.training
    assert list(rows) == (["teacher", "student"] if preset == "default" else ["student", "teacher"])
    assert set(found) == {"validation_accuracy", "knn_accuracy", "ridge_accuracy"}


def test_the_same_features_get_the_same_answer(make_config: Make, tmp_path: Path) -> None:
    run = start(make_config())
    assert run.evaluator.rows(run.engine, after=1) == run.evaluator.rows(run.engine, after=1)


def test_a_row_is_that_of_the_given_task_by_the_configured_probe(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("climb.session.evaluation.evaluate", lambda *_, **options: asked.append(options))
    run = start(make_config(seed=3, evaluation={"epochs": 7}))
    assert list(run.evaluator.rows(run.engine, after=1)) == ["teacher"]
    assert asked == [{"after": 1, "classes": 4, "config": LinearProbeConfig(epochs=7), "seed": 3}]


def test_every_number_of_a_row_is_written_under_its_own_name() -> None:
    row = Row(per_task=(10.0, 20.0), joint=30.0, upto=40.0, upto_per_image=50.0)
    assert row_to_json(row) == {"per_task": [10.0, 20.0], "joint": 30.0, "upto": 40.0, "upto_per_image": 50.0}


@pytest.mark.parametrize(
    ("method", "wanted", "probed"),
    [
        ("climb", "student", ["student"]),
        ("climb", "teacher", ["teacher"]),
        ("climb", "both", ["teacher", "student"]),
        ("er-fifo", "teacher", ["student"]),
        ("er-fifo", "both", ["student"]),
    ],
)
def test_which_networks_are_probed(
    method: str, wanted: str, probed: list[str], make_config: Make, tmp_path: Path
) -> None:
    run = start(make_config(learner={"method": method}, evaluation={"network": wanted}))
    assert list(run.evaluator.networks(run.engine)) == probed
    assert set(run.evaluator.final_probes(run.engine)) == {"validation_accuracy"}


def test_validation_accuracy_is_of_held_out_images_and_blind_to_test_images(make_config: Make, tmp_path: Path) -> None:
    run = start(make_config())
    before = run.evaluator.final_probes(run.engine)["validation_accuracy"]
    accuracies = run.evaluator.rows(run.engine, after=1)
    run.data.test.labels.zero_()
    assert run.evaluator.rows(run.engine, after=1) != accuracies
    assert run.evaluator.final_probes(run.engine)["validation_accuracy"] == before
    held_out = torch.cat([group.validation for group in run.evaluator.groups])
    run.data.train.labels.zero_()
    assert run.evaluator.final_probes(run.engine)["validation_accuracy"] == 100
    run.data.train.labels[held_out] = 1
    assert run.evaluator.final_probes(run.engine)["validation_accuracy"] < 50


@pytest.mark.parametrize(("per_class", "neighbours"), [(40, 50), (12, 44)])
def test_the_other_probes_see_trained_images_and_at_most_fifty_neighbours(
    per_class: int, neighbours: int, make_config: Make, tmp_path: Path
) -> None:
    options = {"classes": 4, "train_per_class": per_class, "test_per_class": 10}
    run = start(make_config(data={"options": options}, evaluation={"knn": True, "ridge": True}))
    assert run.engine.parts.teacher is not None
    train, test = (
        run.evaluator.encoded(run.engine, run.engine.parts.teacher, split.images)
        for split in (run.data.train, run.data.test)
    )
    rows = torch.cat([group.train for group in run.evaluator.groups])
    known = (train[rows], run.data.train.labels[rows], test, run.data.test.labels)
    found = run.evaluator.final_probes(run.engine)
    assert found["knn_accuracy"] == knn_accuracy(*known, k=neighbours)
    assert found["ridge_accuracy"] == ridge_accuracy(*known)


@pytest.mark.parametrize("probe", ["knn", "ridge"])
def test_of_the_other_probes_only_those_asked_for_are_taken(probe: str, make_config: Make, tmp_path: Path) -> None:
    run = start(make_config(evaluation={probe: True}))
    assert set(run.evaluator.final_probes(run.engine)) == {"validation_accuracy", f"{probe}_accuracy"}


def test_where_no_image_is_held_out_there_is_no_validation_accuracy(make_config: Make, tmp_path: Path) -> None:
    run = start(make_config(data={"options": {"classes": 4, "train_per_class": 4, "test_per_class": 4}}))
    assert not any(len(group.validation) for group in run.evaluator.groups)
    assert run.evaluator.final_probes(run.engine) == {}


def test_features_are_computed_in_the_precision_of_the_engine(
    make_config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr("climb.session.evaluation.extract_features", lambda *_, **options: asked.append(options))
    execution = Execution(device="cpu", precision="bf16")
    run = Trained(make_config(), execution, batches=0)
    run.evaluator.encoded(run.engine, run.engine.parts.network, run.data.test.images)
    assert [options["precision"] for options in asked] == ["bf16"]


def test_what_is_remembered_has_the_features_of_the_main_network(make_config: Make, tmp_path: Path) -> None:
    run = start(make_config())
    content = run.evaluator.memory_snapshot(run.engine)
    assert content is not None
    assert run.engine.parts.teacher is not None
    features = run.evaluator.encoded(run.engine, run.engine.parts.teacher, content.images)
    given = [group.embeddings for group in content.groups if group.embeddings is not None]
    assert torch.equal(torch.cat(given), features)


def test_patches_are_remembered_without_features_and_nothing_by_a_method_without_a_memory(
    make_config: Make, tmp_path: Path
) -> None:
    config = make_config(data={"image_size": 32}, learner={"image_size": 32}, evaluation={"network": "student"})
    patches, nothing = (
        start(replace(config, learner=choose_method(config.learner, method))) for method in ("pcmc", "finetune")
    )
    content = patches.evaluator.memory_snapshot(patches.engine)
    assert content is not None
    assert content.images.shape[-1] != patches.engine.config.image_size
    assert all(group.embeddings is None for group in content.groups)
    assert nothing.evaluator.memory_snapshot(nothing.engine) is None
