"""Irregular task sizes as the code released with the CLIMB paper draws them."""

from __future__ import annotations

import math

import numpy as np


def released_sizes(total: int, parts: int, generator: np.random.RandomState) -> tuple[int, ...]:
    """``parts`` sizes of at least 1 that sum to ``total``; no upper bound, and early tasks tend to be larger.

    Uniform numbers are scaled to sum to ``total`` and rounded down, zeros become ones, and what is then
    lacking is added one by one from the first task on. For comparison with published numbers only:
    `uniform_sizes` has no such bias.

    >>> sum(released_sizes(100, 20, np.random.RandomState(0)))
    100
    """
    draws = generator.random_sample(parts).tolist()
    # fsum rounds once, in whatever order it adds, so that all machines scale alike.
    norm = math.fsum(draws)
    sizes = [max(math.floor(draw / norm * total), 1) for draw in draws]
    # Rounding down loses less than one a task, so no task is topped up twice.
    for task in range(total - sum(sizes)):
        sizes[task] += 1
    while sum(sizes) > total:
        sizes[sizes.index(max(sizes))] -= 1
    return tuple(sizes)
