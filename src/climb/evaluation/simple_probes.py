"""Probes without a training loop: nearest neighbours and a ridge classifier."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from climb.errors import InputError
from climb.evaluation.features import check_pair
from climb.precision import full_float32, widest

ENTRIES_AT_ONCE = 2**26
"""Most entries of the test-by-train similarity matrix that are computed at a time: 256 MiB of float32."""


def knn_predictions(train: Tensor, train_labels: Tensor, test: Tensor, *, k: int = 50) -> Tensor:
    """Labels (m,) of test features (m, f): the majority label of the k nearest training features (n, f).

    Distances are Euclidean after standardisation by the training part. Every neighbour has one vote. The smallest label
    wins a tie.
    """
    _check_neighbours(k, len(train))
    reference, queries = standardize(train, test, dtype=torch.float32)
    # For one query, |q - t|^2 and |t|^2 / 2 - q.t order the t equally.
    half_norms = reference.square().sum(dim=1) / 2
    with full_float32():
        gaps = (torch.addmm(half_norms, block, reference.T, alpha=-1) for block in _blocks(queries, len(reference)))
        nearest = train_labels[torch.cat([gap.topk(k, largest=False).indices for gap in gaps])]
    return _elect(nearest, torch.ones((), device=train.device).expand(nearest.shape))


def weighted_knn_predictions(
    train: Tensor, train_labels: Tensor, test: Tensor, *, k: int = 200, temperature: float = 0.1
) -> Tensor:
    """Labels (m,) of test features (m, f): k neighbours by cosine vote with weights exp(cosine / temperature)."""
    _check_neighbours(k, len(train))
    if temperature <= 0:
        raise InputError(f"temperature is {temperature}; it must be above 0.")
    reference, queries = F.normalize(train.float()), F.normalize(test.float())
    with full_float32():
        blocks = [(block @ reference.T).topk(k) for block in _blocks(queries, len(reference))]
    cosine, nearest = (torch.cat(part) for part in zip(*blocks, strict=True))
    # Relative to the nearest neighbour: the same vote, without overflow.
    return _elect(train_labels[nearest], ((cosine - cosine[:, :1]) / temperature).exp())


def knn_accuracy(train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, k: int = 50) -> float:
    """Percent of test features (m, f) with a correct prediction by their k nearest training features (n, f).

    >>> train, labels = torch.tensor([[0.0], [1.0], [8.0], [9.0]]), torch.tensor([0, 0, 1, 1])
    >>> knn_accuracy(train, labels, torch.tensor([[2.0], [7.0]]), torch.tensor([0, 0]), k=2)
    50.0
    """
    check_pair(train, train_labels, test, test_labels)
    predicted = knn_predictions(train, train_labels, test, k=k)
    return 100.0 * int((predicted == test_labels).sum()) / len(test_labels)


def weighted_knn_accuracy(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, k: int = 200, temperature: float = 0.1
) -> float:
    """Percent of test features (m, f) with a correct prediction by a cosine-weighted vote, as in Osiris.

    >>> train, labels = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), torch.tensor([0, 0, 1])
    >>> weighted_knn_accuracy(train, labels, torch.tensor([[0.1, 2.0]]), torch.tensor([1]), k=3)
    100.0
    """
    check_pair(train, train_labels, test, test_labels)
    predicted = weighted_knn_predictions(train, train_labels, test, k=k, temperature=temperature)
    return 100.0 * int((predicted == test_labels).sum()) / len(test_labels)


def _elect(labels: Tensor, votes: Tensor) -> Tensor:
    """The label (m,) with most votes among labels (m, k); the smallest one of a tie."""
    ballot = torch.zeros(len(labels), int(labels.max()) + 1, device=labels.device)
    return ballot.scatter_add_(1, labels, votes).argmax(dim=1)


def _blocks(queries: Tensor, references: int) -> tuple[Tensor, ...]:
    return torch.split(queries, max(1, ENTRIES_AT_ONCE // references))


def _check_neighbours(k: int, rows: int) -> None:
    if not 1 <= k <= rows:
        raise InputError(f"k is {k}; with {rows} training rows, 1 to {rows} neighbours are allowed.")


def ridge_predictions(train: Tensor, train_labels: Tensor, test: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Labels (m,) of test features (m, f) by ridge regression on targets of -1 and +1, one per class.

    Features are standardised by the training part (n, f). The intercept is not penalised. Solved in float64.
    """
    if alpha <= 0:
        raise InputError(f"alpha is {alpha}; the ridge penalty must be above 0.")
    if widest(train.device) != torch.float64:  # the CPU supports it
        return ridge_predictions(train.cpu(), train_labels.cpu(), test.cpu(), alpha=alpha).to(train.device)
    x, queries = standardize(train, test, dtype=torch.float64)
    # Classes without training images have no column: a constant -1 could be the largest value of a row.
    classes: Tensor
    classes, column = torch.unique(train_labels, return_inverse=True)
    targets = torch.full((len(x), len(classes)), -1.0, dtype=torch.float64, device=x.device)
    targets.scatter_(1, column.unsqueeze(1), 1.0)
    intercept = targets.mean(dim=0)
    gram = x.T @ x
    gram.diagonal().add_(alpha)
    # Standardised features have mean zero, so the intercept is the mean of the targets.
    weight = torch.cholesky_solve(x.T @ (targets - intercept), torch.linalg.cholesky(gram))
    return classes[(queries @ weight + intercept).argmax(dim=1)]


def ridge_accuracy(
    train: Tensor, train_labels: Tensor, test: Tensor, test_labels: Tensor, *, alpha: float = 1.0
) -> float:
    """Percent of test features (m, f) with a correct prediction by a ridge classifier trained on (n, f).

    >>> train = torch.tensor([[0.0, 1.0], [1.0, 5.0], [4.0, 2.0], [5.0, 3.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> ridge_accuracy(train, labels, torch.tensor([[0.5, 3.0], [4.5, 3.0]]), torch.tensor([0, 1]))
    100.0
    """
    check_pair(train, train_labels, test, test_labels)
    predicted = ridge_predictions(train, train_labels, test, alpha=alpha)
    return 100.0 * int((predicted == test_labels).sum()) / len(test_labels)


def standardize(train: Tensor, test: Tensor, *, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Standardise both parts, (n, f) and (m, f), by mean and deviation of the training part.

    A feature that is constant up to rounding is centred but not scaled, as in scikit-learn's StandardScaler. Its
    deviation consists of rounding errors only.

    >>> train, test = standardize(torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0]]), dtype=torch.float32)
    >>> train.flatten().tolist(), test.item()
    ([-1.0, 1.0], 3.0)
    """
    wide = train.to(widest(train.device))
    variance, mean = torch.var_mean(wide, dim=0, correction=0)
    rounding = torch.finfo(wide.dtype).eps * len(train)
    constant = variance <= rounding * variance + (rounding * mean).square()
    scale = torch.where(constant, 1.0, variance.sqrt())
    return ((wide - mean) / scale).to(dtype), ((test.to(wide.dtype) - mean) / scale).to(dtype)
