from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from climb.errors import InputError
from climb.evaluation import ridge_accuracy
from climb.evaluation.ridge import ridge_predictions


@pytest.mark.parametrize("classes", [2, 7])
@pytest.mark.parametrize("alpha", [1.0, 300.0])
def test_agrees_with_scikit_learn(blobs, classes: int, alpha: float) -> None:
    train, train_labels = blobs(600, classes=classes, spread=2.0)
    test, test_labels = blobs(1000, classes=classes, spread=2.0, seed=1)
    # Unequal scales, an offset, and far fewer of class 0, so that standardisation and intercept matter.
    scale = torch.logspace(-2, 2, 16)
    kept = (train_labels != 0) | (torch.arange(600) % 8 == 0)
    train, train_labels, test = (train * scale + 3)[kept], train_labels[kept], test * scale + 3
    oracle = make_pipeline(StandardScaler(), RidgeClassifier(alpha=alpha))
    oracle.fit(train.double().numpy(), train_labels.numpy())
    expected = oracle.predict(test.double().numpy())
    predicted = ridge_predictions(train, train_labels, test, alpha=alpha).numpy()
    np.testing.assert_array_equal(predicted, expected)
    accuracy = ridge_accuracy(train, train_labels, test, test_labels, alpha=alpha)
    assert accuracy == pytest.approx(100 * (expected == test_labels.numpy()).mean())
    assert 20 < accuracy < 99.5


def test_classes_without_training_rows_are_never_predicted(blobs) -> None:
    train, labels = blobs(200, classes=3)
    predicted = ridge_predictions(train, labels * 4 + 1, 50 * train)
    assert set(predicted.tolist()) <= {1, 5, 9}


def test_collapsed_features_give_the_commonest_class() -> None:
    labels = torch.tensor([2, 2, 1])
    assert ridge_predictions(torch.ones(3, 4), labels, torch.ones(2, 4)).tolist() == [2, 2]


def test_bad_input_is_refused(blobs) -> None:
    features, labels = blobs(10)
    with pytest.raises(InputError, match="alpha is 0; the ridge penalty must be above 0"):
        ridge_accuracy(features, labels, features, labels, alpha=0)
    with pytest.raises(InputError, match="train features have 16 columns but test features 3"):
        ridge_accuracy(features, labels, features[:, :3], labels)
