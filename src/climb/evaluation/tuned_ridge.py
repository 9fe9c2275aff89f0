"""A ridge classifier whose penalty is chosen on held-out training rows."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from climb.evaluation.features import check_pair
from climb.evaluation.simple_probes import standardize
from climb.precision import widest
from climb.seeds import frozen_generator

PENALTIES = tuple(10.0**power for power in range(-4, 2))
"""Penalties per training row. Standardised features have a sum of squares of one per row, so one grid fits any size."""
WITHOUT_CHOICE = 0.1
"""Penalty per row where no row can be held out: some class has a single one."""
FOLDS = 5
"""Each fold holds out a fifth of every class."""
ENOUGH = 200
"""Held-out rows after which no further fold is tried."""


def tuned_ridge_predictions(train: Tensor, train_labels: Tensor, test: Tensor, *, seed: int) -> Tensor:
    """Labels (m,) of test features (m, f) by ridge regression on standardised features, one target per class.

    The penalty is the one of `PENALTIES` with most correct predictions on held-out rows of the training part (n, f); of
    equal ones, the strongest. One fold is held out, or up to five if the training part is small. The classifier is then
    fitted to all training rows.

    >>> train, labels = torch.tensor([[0.0], [0.1], [0.9], [1.0]]), torch.tensor([3, 3, 5, 5])
    >>> tuned_ridge_predictions(train, labels, torch.tensor([[0.2], [0.8]]), seed=0)
    tensor([3, 5])
    """
    if widest(train.device) != torch.float64:  # the CPU supports it
        rows = (train.cpu(), train_labels.cpu(), test.cpu())
        return tuned_ridge_predictions(*rows, seed=seed).to(train.device)
    penalty = choose_penalty(train, train_labels, seed=seed)
    return _fitted(train, train_labels, test, (penalty,))[0]


def tuned_ridge_accuracy(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, seed: int) -> float:
    """Percent of test features (m, f) with a correct prediction by `tuned_ridge_predictions`."""
    check_pair(train, train_labels, test, test_labels)
    predicted = tuned_ridge_predictions(train, train_labels, test, seed=seed)
    return 100.0 * int((predicted == test_labels).sum()) / len(test_labels)


def choose_penalty(train: Tensor, train_labels: Tensor, *, seed: int) -> float:
    """The penalty per row for training features (n, f), chosen on held-out rows of them."""
    fold = _folds(train_labels, seed)
    if fold is None:
        return WITHOUT_CHOICE
    correct, tried = np.zeros(len(PENALTIES), dtype=np.int64), 0
    for number in range(FOLDS):
        held_out = fold == number
        if not bool(held_out.any()):  # classes of two to four rows fill the first folds only
            continue
        labels = train_labels[held_out]
        guesses = _fitted(train[~held_out], train_labels[~held_out], train[held_out], PENALTIES)
        correct += [int((guess == labels).sum()) for guess in guesses]
        tried += len(labels)
        if tried >= ENOUGH:
            break
    return max(zip(correct, PENALTIES, strict=True))[1]


def _folds(labels: Tensor, seed: int) -> Tensor | None:
    """The fold (n,) of each row, with equal shares of every class; None if a class has a single row."""
    array = labels.cpu().numpy()
    generator, fold = frozen_generator(seed, "ridge/folds"), np.zeros(len(array), dtype=np.int64)
    for label in np.unique(array):
        members = generator.permutation(np.flatnonzero(array == label))
        if len(members) < 2:
            return None
        fold[members] = np.arange(len(members)) % FOLDS
    return torch.from_numpy(fold).to(labels.device)


def _fitted(train: Tensor, train_labels: Tensor, test: Tensor, penalties: tuple[float, ...]) -> list[Tensor]:
    """Predicted labels (m,) of the test rows, for each penalty per row. One decomposition serves all of them."""
    x, queries = standardize(train, test, dtype=torch.float64)
    classes: Tensor
    classes, column = torch.unique(train_labels, return_inverse=True)
    targets = torch.full((len(x), len(classes)), -1.0, dtype=torch.float64, device=x.device)
    targets.scatter_(1, column.unsqueeze(1), 1.0)
    intercept = targets.mean(dim=0)
    # The smaller of the two Gram matrices: that of the rows if there are fewer rows than features.
    if len(x) <= x.shape[1]:
        values, vectors = torch.linalg.eigh(x @ x.T)
        left, right = (queries @ x.T) @ vectors, vectors.T @ (targets - intercept)
    else:
        values, vectors = torch.linalg.eigh(x.T @ x)
        left, right = queries @ vectors, vectors.T @ (x.T @ (targets - intercept))
    shrunk = ((values + penalty * len(x)).unsqueeze(1) for penalty in penalties)
    return [classes[(left @ (right / scale) + intercept).argmax(dim=1)] for scale in shrunk]
