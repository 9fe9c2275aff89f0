"""The ridge probe with a chosen penalty: scikit-learn's solution at that penalty, and a penalty that helps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.preprocessing import StandardScaler

from climb.evaluation.tuned_ridge import (
    PENALTIES,
    WITHOUT_CHOICE,
    choose_penalty,
    tuned_ridge_accuracy,
    tuned_ridge_predictions,
)


def clouds(rows: int, features: int, *, noise: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes around three points; only the first four features tell them apart."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % 3
    centres = torch.randn(3, 4, generator=torch.Generator().manual_seed(9))
    points = noise * torch.randn(rows, features, generator=generator)
    points[:, :4] += centres[labels]
    return points, labels


@pytest.mark.parametrize(("rows", "features"), [(60, 8), (30, 80)])
def test_it_is_scikit_learns_classifier_at_the_chosen_penalty(rows: int, features: int) -> None:
    """With more rows than features, and with fewer: the two Gram matrices."""
    (train, labels), (test, _) = clouds(rows, features, noise=1.0), clouds(90, features, noise=1.0, seed=1)
    penalty = choose_penalty(train, labels, seed=0)
    scaler = StandardScaler().fit(train.numpy())
    reference = RidgeClassifier(alpha=penalty * rows).fit(scaler.transform(train.numpy()), labels.numpy())
    expected = reference.predict(scaler.transform(test.numpy()))
    assert np.array_equal(tuned_ridge_predictions(train, labels, test, seed=0).numpy(), expected)


def test_noisy_features_get_a_strong_penalty_and_clear_ones_need_none() -> None:
    """With 200 features for 60 rows, weak penalties fit the noise."""
    (train, labels), (test, answers) = clouds(60, 200, noise=1.0), clouds(300, 200, noise=1.0, seed=1)
    assert choose_penalty(train, labels, seed=0) >= 0.1
    accuracy = tuned_ridge_accuracy(train, labels, test, answers, seed=0)
    scaler = StandardScaler().fit(train.numpy())
    weak = RidgeClassifier(alpha=60 * PENALTIES[0], solver="svd").fit(scaler.transform(train.numpy()), labels.numpy())
    assert accuracy >= 100 * weak.score(scaler.transform(test.numpy()), answers.numpy())


def test_a_class_with_one_row_leaves_nothing_to_hold_out() -> None:
    train, labels = torch.eye(3), torch.tensor([0, 1, 2])
    assert choose_penalty(train, labels, seed=0) == WITHOUT_CHOICE
    assert tuned_ridge_predictions(train, labels, train, seed=0).tolist() == [0, 1, 2]


def test_labels_need_not_be_consecutive_and_the_seed_decides_the_folds() -> None:
    train, labels = clouds(40, 6, noise=2.0)
    first = tuned_ridge_predictions(train, 7 * labels + 3, train, seed=0)
    assert set(first.tolist()) <= {3, 10, 17}
    assert torch.equal(first, tuned_ridge_predictions(train, 7 * labels + 3, train, seed=0))
    assert len({choose_penalty(train, labels, seed=seed) for seed in range(8)}) > 1
