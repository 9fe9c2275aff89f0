from __future__ import annotations

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler

from climb.evaluation.standardize import standardize


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


def test_gives_the_type_asked_for() -> None:
    train, test = standardize(torch.rand(4, 2), torch.rand(3, 2), dtype=torch.float32)
    assert (train.dtype, test.dtype) == (torch.float32, torch.float32)
