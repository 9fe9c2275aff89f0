"""Accuracies with standard errors, paired differences, and what they can tell."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from climb.errors import InputError

RIDGE_FROM, LINEAR_FROM = 100, 5000
"""Training images from which on these probes are trained well (``results/probe-sizes``)."""
RESOLVED = 1.0
"""Points. A test set that tells such a difference from none is large enough for any verdict."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """An accuracy in percent: the mean of values that are independent draws.

    The values are one per test image, 0 or 100, or one per draw of training images. Two measurements of the same images
    or draws are subtracted pair by pair, which leaves out what is common to both.

    >>> encoder = Measured.of_answers(torch.tensor([True, True, True, False]))
    >>> start = Measured.of_answers(torch.tensor([True, True, False, False]))
    >>> encoder.accuracy, (encoder - start).accuracy, round((encoder - start).standard_error, 1)
    (75.0, 25.0, 25.0)
    """

    values: NDArray[np.float64]

    @classmethod
    def of_answers(cls, correct: torch.Tensor) -> Measured:
        """From booleans (m,): whether each test image was recognised."""
        return cls(values=100.0 * correct.cpu().numpy().astype(np.float64))

    @property
    def accuracy(self) -> float:
        """The mean."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean; None for a single value."""
        count = len(self.values)
        return float(self.values.std(ddof=1)) / math.sqrt(count) if count > 1 else None

    def __sub__(self, other: Measured) -> Measured:
        if self.values.shape != other.values.shape:
            counts = f"{len(self.values)} and {len(other.values)} values"
            raise InputError(f"measurements of {counts} are not pairs; measure both on the same images or draws")
        return Measured(values=self.values - other.values)


def probe_to_read(train_images: int) -> tuple[str, str]:
    """The probe that suits a number of training images, and why.

    >>> probe_to_read(40)[0], probe_to_read(300)[0]
    ('knn', 'ridge')
    """
    if train_images < RIDGE_FROM:
        return "knn", f"the ridge probe needs about {RIDGE_FROM} training images"
    if train_images < LINEAR_FROM:
        return "ridge", f"the linear probe needs about {LINEAR_FROM:,} training images"
    return "ridge", "the linear probe is for comparisons with papers"


def size_warning(difference: Measured, test_images: int) -> str | None:
    """What a test set is too small to tell; None if it tells this difference, or one of a point.

    >>> first, second = (Measured.of_answers(torch.tensor(row)) for row in ([True, False] * 10, [True, True] * 10))
    >>> size_warning(second - first, 20)  # 50 points
    >>> swapped = Measured.of_answers(torch.tensor([False, True] + [True, False] * 9))
    >>> size_warning(swapped - first, 20)
    '20 test images tell differences from 14.5 points on; 1 point needs about 4,200'
    """
    # Equal answers on a few images are no proof of equality: at least one image more or less.
    error = max(difference.standard_error or 0.0, 100.0 / test_images)
    if 2 * error <= max(abs(difference.accuracy), RESOLVED):
        return None
    needed = test_images * (2 * error / RESOLVED) ** 2
    digits = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return (
        f"{test_images:,} test images tell differences from {2 * error:.1f} points on; "
        f"1 point needs about {round(needed / digits) * digits:,}"
    )
