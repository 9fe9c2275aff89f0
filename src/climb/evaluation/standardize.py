"""Zero mean and unit variance per feature, learned on the training features."""

from __future__ import annotations

import torch

from climb.precision import widest


def standardize(train: torch.Tensor, test: torch.Tensor, *, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Both parts, (n, f) and (m, f), shifted and scaled by the mean and deviation of the training part.

    A feature that is constant up to rounding is centred and left unscaled, as scikit-learn's StandardScaler does:
    dividing by a deviation made of rounding errors would blow them up.

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
