"""The linear, the nearest-neighbour and the ridge probe of one set of features."""

from __future__ import annotations

import torch
from torch import Tensor

from climb.evaluation.linear import fit_linear_probe
from climb.evaluation.measured import Measured
from climb.evaluation.simple_probes import weighted_knn_predictions
from climb.evaluation.tuned_ridge import tuned_ridge_predictions

PROBES = {
    "linear": "trained with Adam, as in climb run",
    "knn": "the nearest by cosine vote",
    "ridge": "least squares, penalty chosen on held-out training images",
}
"""The probes, with a description of each."""
NEIGHBOURS = 20
"""Most neighbours that vote."""
Rows = tuple[Tensor, Tensor]
"""Features float32 (n, f) and labels int64 (n,) on one device."""


def three_probes(
    train: Rows, test: Rows, *, split: tuple[Tensor, Tensor] | None = None, classes: int, seed: int
) -> dict[str, Measured]:
    """Accuracy on the test rows of each of `PROBES`.

    ``split`` are the training rows of the linear probe and those that choose its epoch, by index. Without it, or if the
    second are none, all rows are both. The other two probes are fitted to all rows.
    """
    rows, held_out = split or (torch.arange(len(train[1])), torch.zeros(0, dtype=torch.int64))
    own, validation = (
        (train[0][part], train[1][part]) for part in (rows.to(train[1].device), held_out.to(train[1].device))
    )
    linear = fit_linear_probe(*own, *validation, classes=classes, seed=seed).predict(test[0])
    predicted = {"linear": linear, **quick_predictions(train, test[0], seed=seed)}
    return {name: Measured.of_answers(labels == test[1]) for name, labels in predicted.items()}


def quick_probes(train: Rows, test: Rows, *, seed: int) -> dict[str, Measured]:
    """Accuracy on the test rows of the two probes that need no training loop."""
    predicted = quick_predictions(train, test[0], seed=seed)
    return {name: Measured.of_answers(labels == test[1]) for name, labels in predicted.items()}


def quick_predictions(train: Rows, test: Tensor, *, seed: int) -> dict[str, Tensor]:
    """Labels (m,) of test features (m, f) by nearest neighbours and by ridge."""
    return {
        "knn": weighted_knn_predictions(*train, test, k=neighbours(train[1])),
        "ridge": tuned_ridge_predictions(*train, test, seed=seed),
    }


def neighbours(labels: Tensor) -> int:
    """The number of neighbours: 20, or the mean size of a class if that is less.

    >>> neighbours(torch.arange(3).repeat(5))
    5
    """
    return min(NEIGHBOURS, max(1, round(len(labels) / len(torch.unique(labels)))))
