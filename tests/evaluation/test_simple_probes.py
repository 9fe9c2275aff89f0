from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from climb.errors import InputError
from climb.evaluation import knn_accuracy, ridge_accuracy, simple_probes, weighted_knn_accuracy
from climb.evaluation.simple_probes import knn_predictions, ridge_predictions, standardize, weighted_knn_predictions


@pytest.fixture(params=[None, 10_000], ids=["one block", "many blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(simple_probes, "ENTRIES_AT_ONCE", request.param)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("k", [1, 2, 50])
def test_neighbours_agree_with_scikit_learn(blobs, k: int) -> None:
    # Features of unequal scale, so that the standardisation matters.
    scale = torch.logspace(-2, 2, 16)
    train, train_labels = blobs(1500, classes=7, spread=1.5)
    test, test_labels = blobs(1000, classes=7, spread=1.5, seed=1)
    train, test = train * scale, test * scale
    oracle = make_pipeline(StandardScaler(), KNeighborsClassifier(n_neighbors=k))
    oracle.fit(train.double().numpy(), train_labels.numpy())
    expected = oracle.predict(test.double().numpy())
    predicted = knn_predictions(train, train_labels, test, k=k).numpy()
    assert (predicted == expected).mean() >= 0.999
    accuracy = knn_accuracy(train, train_labels, test, test_labels, k=k)
    assert accuracy == pytest.approx(100 * (expected == test_labels.numpy()).mean(), abs=0.1)
    assert 30 < accuracy < 99


def test_a_block_of_similarities_stays_within_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simple_probes, "ENTRIES_AT_ONCE", 100)
    assert [len(block) for block in simple_probes._blocks(torch.zeros(10, 2), 30)] == [3, 3, 3, 1]
    assert [len(block) for block in simple_probes._blocks(torch.zeros(2, 2), 101)] == [1, 1]  # one row at the least


def test_the_smallest_label_wins_a_tie() -> None:
    train, labels = torch.tensor([[0.0], [1.0], [2.0], [3.0]]), torch.tensor([2, 1, 1, 2])
    assert knn_predictions(train, labels, torch.tensor([[1.4], [9.0]]), k=4).tolist() == [1, 1]


@pytest.mark.usefixtures("blocks")
def test_the_weighted_vote_is_the_one_written_out_here(blobs) -> None:
    train, train_labels = blobs(400, classes=6, spread=1.5)
    test, test_labels = blobs(80, classes=6, spread=1.5, seed=1)
    cosine = (F.normalize(test.double()) @ F.normalize(train.double()).T).numpy()
    expected = []
    for row in cosine:
        votes = np.zeros(6)
        for neighbour in np.argsort(-row)[:30]:
            votes[train_labels[neighbour]] += np.exp(row[neighbour] / 0.1)
        expected.append(int(votes.argmax()))
    predicted = weighted_knn_predictions(train, train_labels, test, k=30)
    assert predicted.tolist() == expected
    accuracy = weighted_knn_accuracy(train, train_labels, test, test_labels, k=30)
    assert accuracy == pytest.approx(100 * np.mean(np.array(expected) == test_labels.numpy()))


def test_near_neighbours_outvote_many_far_ones_when_cold() -> None:
    train = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    labels, query = torch.tensor([1, 0, 0, 0]), torch.tensor([[1.0, 0.2]])
    assert weighted_knn_predictions(train, labels, query, k=4, temperature=0.01).item() == 1
    assert weighted_knn_predictions(train, labels, query, k=4, temperature=10.0).item() == 0


@pytest.mark.parametrize("k", [0, 11])
def test_an_impossible_number_of_neighbours_is_rejected(blobs, k: int) -> None:
    features, labels = blobs(10)
    for probe in (knn_accuracy, weighted_knn_accuracy):
        with pytest.raises(InputError, match=f"k is {k}; with 10 training rows, 1 to 10 neighbours"):
            probe(features, labels, features, labels, k=k)


def test_bad_input_of_neighbours_is_rejected(blobs) -> None:
    features, labels = blobs(10)
    with pytest.raises(InputError, match="temperature is 0"):
        weighted_knn_accuracy(features, labels, features, labels, k=3, temperature=0)
    with pytest.raises(InputError, match="10 rows of features but 9 labels"):
        knn_accuracy(features, labels[:9], features, labels, k=3)


def test_a_cold_vote_does_not_overflow() -> None:
    train = F.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.2], [1.0, -0.2]]))
    labels = torch.tensor([1, 0, 0])
    # exp(1 / 0.001) is no float32: every vote would be infinite, and the smallest label win.
    assert weighted_knn_predictions(train, labels, train[:1], k=3, temperature=0.001).tolist() == [1]


@pytest.mark.parametrize("classes", [2, 7])
@pytest.mark.parametrize("alpha", [1.0, 300.0])
def test_ridge_agrees_with_scikit_learn(blobs, classes: int, alpha: float) -> None:
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


def test_bad_input_of_ridge_is_rejected(blobs) -> None:
    features, labels = blobs(10)
    with pytest.raises(InputError, match="alpha is 0; the ridge penalty must be above 0"):
        ridge_accuracy(features, labels, features, labels, alpha=0)
    with pytest.raises(InputError, match="train features have 16 columns but test features 3"):
        ridge_accuracy(features, labels, features[:, :3], labels)


def test_agrees_with_scikit_learn_constant_features_included(blobs) -> None:
    train, _ = blobs(200)
    test, _ = blobs(50, seed=1)
    train, test = train * 7 + 100, test * 7 + 100
    train[:, 2] = 0.1
    train[:, 3] = 0.0
    scaler = StandardScaler().fit(train.numpy().astype(np.float64))
    ours = standardize(train, test, dtype=torch.float64)
    for given, mine in zip((train, test), ours, strict=True):
        np.testing.assert_allclose(mine.numpy(), scaler.transform(given.numpy().astype(np.float64)), atol=1e-9)


def test_a_feature_that_varies_by_rounding_alone_is_constant() -> None:
    train = torch.ones(5, 1, dtype=torch.float64)
    train[2] += torch.finfo(torch.float64).eps
    centred, _ = standardize(train, train, dtype=torch.float64)
    assert centred.abs().max() < 1e-15  # not blown up to a deviation of one
    scaler = StandardScaler().fit(train.numpy())
    np.testing.assert_allclose(centred.numpy(), scaler.transform(train.numpy()), atol=1e-15)


def test_returns_the_requested_dtype() -> None:
    train, test = standardize(torch.rand(4, 2), torch.rand(3, 2), dtype=torch.float32)
    assert (train.dtype, test.dtype) == (torch.float32, torch.float32)
