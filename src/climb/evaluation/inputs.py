"""What every probe asks of the features and labels it is handed."""

from __future__ import annotations

import torch

from climb.errors import ClimbError, InputError


def check_labelled(name: str, features: torch.Tensor, labels: torch.Tensor) -> None:
    """Refuse features (n, f) and labels (n,) that no probe can use; ``name`` says whose they are.

    >>> check_labelled("test", torch.zeros(3, 8), torch.zeros(2, dtype=torch.int64))
    Traceback (most recent call last):
    climb.errors.InputError: test: 3 rows of features but 2 labels; give one label for every row.
    """
    if features.ndim != 2 or features.shape[1] == 0 or not features.is_floating_point():
        shape = tuple(features.shape)
        raise InputError(f"{name}: features must be floating point (n, f), not {features.dtype} {shape}.")
    if labels.ndim != 1 or labels.dtype != torch.int64:
        raise InputError(f"{name}: labels must be int64 (n,), not {labels.dtype} {tuple(labels.shape)}.")
    if len(features) != len(labels):
        raise InputError(
            f"{name}: {len(features)} rows of features but {len(labels)} labels; give one label for every row."
        )
    if len(features) == 0:
        raise InputError(f"{name}: no rows; a probe needs at least one.")
    if features.device != labels.device:
        raise InputError(
            f"{name}: features are on {features.device} but labels on {labels.device}; "
            f"move the labels with labels.to({str(features.device)!r})."
        )
    if not bool(torch.isfinite(features).all()):
        broken = int((~torch.isfinite(features).all(dim=1)).sum())
        raise ClimbError(
            f"{name}: {broken} of {len(features)} rows of features are not finite. The encoder has diverged: "
            "train again with a smaller learning rate, or evaluate an earlier checkpoint."
        )


def check_label_range(name: str, labels: torch.Tensor, classes: int) -> None:
    """Refuse labels (n,) outside 0 .. classes - 1."""
    low, high = (int(bound) for bound in torch.aminmax(labels))
    if low < 0 or high >= classes:
        raise InputError(
            f"{name}: labels run from {low} to {high}; with {classes} classes, 0 to {classes - 1} is allowed."
        )


def check_pair(train: torch.Tensor, train_labels: torch.Tensor, test: torch.Tensor, test_labels: torch.Tensor) -> None:
    """Refuse a training and a test part, (n, f) and (m, f) with labels, that do not fit together."""
    check_labelled("train", train, train_labels)
    check_labelled("test", test, test_labels)
    check_label_range("train", train_labels, int(train_labels.max()) + 1)
    if train.shape[1] != test.shape[1]:
        raise InputError(
            f"train features have {train.shape[1]} columns but test features {test.shape[1]}; both must agree."
        )
    if train.device != test.device:
        raise InputError(f"train features are on {train.device} but test features on {test.device}; move one of them.")
