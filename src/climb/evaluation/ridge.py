"""The ridge probe: a linear classifier in closed form, for a score without a schedule."""

from __future__ import annotations

import torch

from climb.errors import InputError
from climb.evaluation.inputs import check_pair
from climb.evaluation.standardize import standardize
from climb.precision import widest


def ridge_predictions(
    train: torch.Tensor, train_labels: torch.Tensor, test: torch.Tensor, *, alpha: float = 1.0
) -> torch.Tensor:
    """Labels (m,) for test features (m, f), by ridge regression on targets of -1 and +1, one per class.

    Features are standardised on the training part (n, f); the intercept is not penalised. Solved in float64.
    """
    if alpha <= 0:
        raise InputError(f"alpha is {alpha}; the ridge penalty must be above 0.")
    if widest(train.device) != torch.float64:  # the host has it
        return ridge_predictions(train.cpu(), train_labels.cpu(), test.cpu(), alpha=alpha).to(train.device)
    x, queries = standardize(train, test, dtype=torch.float64)
    # Classes without a training image get no column: their constant -1 could otherwise win a row.
    classes: torch.Tensor
    classes, column = torch.unique(train_labels, return_inverse=True)
    targets = torch.full((len(x), len(classes)), -1.0, dtype=torch.float64, device=x.device)
    targets.scatter_(1, column.unsqueeze(1), 1.0)
    intercept = targets.mean(dim=0)
    gram = x.T @ x
    gram.diagonal().add_(alpha)
    # The standardised features have mean zero, so centring the targets is all the intercept asks for.
    weight = torch.cholesky_solve(x.T @ (targets - intercept), torch.linalg.cholesky(gram))
    return classes[(queries @ weight + intercept).argmax(dim=1)]


def ridge_accuracy(
    train: torch.Tensor,
    train_labels: torch.Tensor,
    test: torch.Tensor,
    test_labels: torch.Tensor,
    *,
    alpha: float = 1.0,
) -> float:
    """Percent of test features (m, f) that a ridge classifier fitted on train (n, f) labels rightly.

    >>> train = torch.tensor([[0.0, 1.0], [1.0, 5.0], [4.0, 2.0], [5.0, 3.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> ridge_accuracy(train, labels, torch.tensor([[0.5, 3.0], [4.5, 3.0]]), torch.tensor([0, 1]))
    100.0
    """
    check_pair(train, train_labels, test, test_labels)
    predicted = ridge_predictions(train, train_labels, test, alpha=alpha)
    return 100.0 * int((predicted == test_labels).sum()) / len(test_labels)
