"""`Climb.score_samples` and `predict`: scikit-learn's convention, of the current encoder and memory."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

from climb import Climb
from climb.errors import InputError
from climb.novelty import ReferenceSet


def images(n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(90, 160, (n, 16, 16, 3), dtype=np.uint8)


@pytest.fixture
def model() -> Climb:
    return Climb(capacity=60, backbone="micro", replay_batch=8, device="cpu", precision="float32").partial_fit(
        images(120)
    )


def expected(model: Climb, asked: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    memory: Any = model.memory_
    ids = memory.stored_ids()
    stored = model.transform(memory.images_of(ids))
    scored = ReferenceSet(torch.from_numpy(stored)).score(torch.from_numpy(model.transform(asked)))
    return 1 - scored.scores.numpy()


def test_scores_are_those_of_the_memory_now(model: Climb) -> None:
    asked = images(20, seed=1)
    np.testing.assert_allclose(model.score_samples(asked), expected(model, asked), atol=2 / 60)
    model.partial_fit(images(1200, seed=2))  # 120 mini-batches: every feature is old
    np.testing.assert_allclose(model.score_samples(asked), expected(model, asked), atol=2 / 60)


def test_new_images_are_minus_one(model: Climb) -> None:
    black = np.zeros((3, 16, 16, 3), dtype=np.uint8)
    assert model.predict(black).tolist() == [-1, -1, -1]
    assert (model.predict(images(200, seed=3), false_alarms=0.1) == 1).mean() > 0.7
    for share in (-0.1, 1.0):
        with pytest.raises(InputError, match="false_alarms"):
            model.predict(black, false_alarms=share)


def test_scoring_changes_no_training() -> None:
    def trained(scores: bool) -> np.ndarray[Any, Any]:
        model = Climb(capacity=60, backbone="micro", replay_batch=8, device="cpu", precision="float32")
        for seed in range(6):
            model.partial_fit(images(30, seed))
            if scores:
                model.score_samples(images(5, 9))
        return model.transform(images(10, 8))

    np.testing.assert_array_equal(trained(True), trained(False))


def test_it_is_safe_while_another_thread_learns(model: Climb) -> None:
    errors: list[Exception] = []

    def ask() -> None:
        try:
            for seed in range(8):
                scores = model.score_samples(images(5, seed))
                assert ((scores > 0) & (scores <= 1)).all()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for seed in range(8):
        model.partial_fit(images(30, seed))
    for thread in threads:
        thread.join()
    assert errors == []


def test_without_a_memory_or_with_too_few_images_it_says_so() -> None:
    with pytest.raises(InputError, match="has not learned yet"):
        Climb().score_samples(images(1))
    with pytest.raises(InputError, match="use a method that stores images"):
        Climb(method="finetune", backbone="micro", device="cpu").partial_fit(images(20)).score_samples(images(1))
    few = Climb(capacity=60, backbone="micro", replay_batch=8, device="cpu").partial_fit(images(4))
    with pytest.raises(InputError, match="4 images are stored; novelty needs at least 10"):
        few.score_samples(images(1))
