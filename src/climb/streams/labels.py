"""Labels that fit a manifest, or an error that says which do not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from climb.errors import InputError
from climb.streams.listing import listing


def checked_labels(labels: torch.Tensor, classes: int, split: str) -> npt.NDArray[np.int64]:
    """``labels``, int64 (n,), as an array: all within 0 .. classes - 1, and no class without an image.

    >>> checked_labels(torch.tensor([0, 1, 1]), 2, "training")
    array([0, 1, 1])
    """
    if not isinstance(labels, torch.Tensor) or labels.dtype != torch.int64 or labels.ndim != 1:
        given = (
            f"{labels.dtype} of shape {tuple(labels.shape)}"
            if isinstance(labels, torch.Tensor)
            else type(labels).__name__
        )
        raise InputError(f"the {split} labels must be a torch.int64 tensor of shape (n,), not {given}")
    array: npt.NDArray[np.int64] = labels.detach().cpu().numpy()
    present = set(np.unique(array).tolist())
    outside = present - set(range(classes))
    if outside:
        raise InputError(
            f"the manifest has classes 0 to {classes - 1}, and the {split} split has the labels"
            f" {listing(outside)}; use a manifest made for this dataset"
        )
    absent = set(range(classes)) - present
    if absent:
        raise InputError(
            f"the {split} split has no image of class {listing(absent)}; every class (0 to {classes - 1}) needs one."
            " A folder without classes or without test images can be learned from, but not evaluated"
        )
    return array
