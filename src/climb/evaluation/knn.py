"""Nearest-neighbour probes: how often do neighbours in feature space share a class? Nothing is trained."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F

from climb.errors import InputError
from climb.evaluation.inputs import check_pair
from climb.evaluation.standardize import standardize
from climb.precision import full_float32

ENTRIES_AT_ONCE = 2**26
"""Largest block of the test-by-train similarity matrix held at a time: 256 MiB of float32."""


def knn_predictions(
    train: torch.Tensor, train_labels: torch.Tensor, test: torch.Tensor, *, k: int = 50
) -> torch.Tensor:
    """Labels (m,) for test features (m, f): the commonest among the k nearest training features (n, f).

    Euclidean distance after standardisation on the training part; every neighbour has one vote, and the smallest
    label wins a tie.
    """
    _check_neighbours(k, len(train))
    reference, queries = standardize(train, test, dtype=torch.float32)
    # For one query, |q - t|^2 orders the t as |t|^2 / 2 - q.t does.
    half_norms = reference.square().sum(dim=1) / 2
    votes = torch.ones((), device=train.device)
    predicted = []
    with full_float32():
        for block in _blocks(queries, len(reference)):
            nearest = torch.addmm(half_norms, block, reference.T, alpha=-1).topk(k, largest=False).indices
            predicted.append(_elect(train_labels[nearest], votes.expand(nearest.shape)))
    return torch.cat(predicted)


def weighted_knn_predictions(
    train: torch.Tensor,
    train_labels: torch.Tensor,
    test: torch.Tensor,
    *,
    k: int = 200,
    temperature: float = 0.1,
) -> torch.Tensor:
    """Labels (m,) for test features (m, f): k neighbours by cosine, each voting with exp(cosine / temperature)."""
    _check_neighbours(k, len(train))
    if temperature <= 0:
        raise InputError(f"temperature is {temperature}; it must be above 0.")
    reference, queries = F.normalize(train.float()), F.normalize(test.float())
    predicted = []
    with full_float32():
        for block in _blocks(queries, len(reference)):
            cosine, nearest = (block @ reference.T).topk(k)
            # Measured from the nearest neighbour: the vote is the same and cannot overflow.
            votes = ((cosine - cosine[:, :1]) / temperature).exp()
            predicted.append(_elect(train_labels[nearest], votes))
    return torch.cat(predicted)


def knn_accuracy(
    train: torch.Tensor,
    train_labels: torch.Tensor,
    test: torch.Tensor,
    test_labels: torch.Tensor,
    *,
    k: int = 50,
) -> float:
    """Percent of test features (m, f) labelled rightly by their k nearest training features (n, f).

    >>> train, labels = torch.tensor([[0.0], [1.0], [8.0], [9.0]]), torch.tensor([0, 0, 1, 1])
    >>> knn_accuracy(train, labels, torch.tensor([[2.0], [7.0]]), torch.tensor([0, 0]), k=2)
    50.0
    """
    check_pair(train, train_labels, test, test_labels)
    predicted = knn_predictions(train, train_labels, test, k=k)
    return 100.0 * int((predicted == test_labels).sum()) / len(test_labels)


def weighted_knn_accuracy(
    train: torch.Tensor,
    train_labels: torch.Tensor,
    test: torch.Tensor,
    test_labels: torch.Tensor,
    *,
    k: int = 200,
    temperature: float = 0.1,
) -> float:
    """Percent of test features (m, f) labelled rightly by a cosine-weighted vote of k neighbours, as in Osiris.

    >>> train, labels = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> weighted_knn_accuracy(train, labels, torch.tensor([[0.1, 2.0]]), torch.tensor([1]), k=3)
    100.0
    """
    check_pair(train, train_labels, test, test_labels)
    predicted = weighted_knn_predictions(train, train_labels, test, k=k, temperature=temperature)
    return 100.0 * int((predicted == test_labels).sum()) / len(test_labels)


def _elect(labels: torch.Tensor, votes: torch.Tensor) -> torch.Tensor:
    """The label (m,) with most votes among labels (m, k); argmax gives the smallest one on a tie."""
    ballot = torch.zeros(len(labels), int(labels.max()) + 1, device=labels.device)
    return ballot.scatter_add_(1, labels, votes).argmax(dim=1)


def _blocks(queries: torch.Tensor, references: int) -> Iterator[torch.Tensor]:
    rows = max(1, ENTRIES_AT_ONCE // references)
    for start in range(0, len(queries), rows):
        yield queries[start : start + rows]


def _check_neighbours(k: int, rows: int) -> None:
    if not 1 <= k <= rows:
        raise InputError(f"k is {k}; with {rows} training rows, 1 to {rows} neighbours are allowed.")
