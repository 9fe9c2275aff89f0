"""Numbers of classes or images of the parts of a stream."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

import numpy as np

from climb.errors import InputError

# The rank is drawn with this many bits more than it needs. Then no composition is more likely than another by more
# than one part in 2**128, and the number of random bytes is known in advance.
_SPARE_BITS = 128


def even_sizes(total: int, parts: int) -> tuple[int, ...]:
    """``parts`` sizes that sum to ``total`` and differ by at most one. The larger ones are spread evenly.

    >>> even_sizes(10, 4)
    (2, 3, 2, 3)
    """
    edges = [total * part // parts for part in range(parts + 1)]
    return tuple(after - before for before, after in pairwise(edges))


def uniform_sizes(total: int, parts: int, cap: int, generator: np.random.RandomState) -> tuple[int, ...]:
    """A composition of ``total`` into ``parts`` sizes from 1 to ``cap``, drawn uniformly from all of them.

    >>> uniform_sizes(6, 3, 2, np.random.RandomState(0))
    (2, 2, 2)
    """
    if not parts <= total <= parts * cap:
        wanted = f"{parts} tasks of 1 to {cap} classes, which hold {parts} to {parts * cap}"
        use = f"use at most {total} tasks and a cap of {-(-total // parts)} or more"
        raise InputError(f"{total} classes cannot be cut into {wanted}; {use}")
    # Draw the rank of a composition in lexicographic order, then read off its sizes.
    ways = count_compositions(total, parts, cap)
    length = (ways[parts][total].bit_length() + _SPARE_BITS + 7) // 8
    rank = int.from_bytes(generator.bytes(length), "little") * ways[parts][total] >> (8 * length)
    sizes = []
    for left in range(parts - 1, -1, -1):
        size = 1
        # Skip the compositions that continue with a smaller size.
        while rank >= ways[left][total - size]:
            rank -= ways[left][total - size]
            size += 1
        sizes.append(size)
        total -= size
    return tuple(sizes)


def count_compositions(total: int, parts: int, cap: int) -> list[list[int]]:
    """``ways[k][s]``: the exact number of sequences of ``k`` sizes from 1 to ``cap`` that sum to ``s``.

    >>> count_compositions(6, 3, 3)[3][6]
    7
    """
    ways = [[1] + [0] * total]
    for _ in range(parts):
        # sums[s] is the sum of the previous row before s, so a window of that row is one subtraction.
        sums = list(accumulate(ways[-1], initial=0))
        ways.append([sums[s] - sums[max(s - cap, 0)] for s in range(total + 1)])
    return ways


def released_sizes(total: int, parts: int, generator: np.random.RandomState) -> tuple[int, ...]:
    """``parts`` sizes that sum to ``total``, drawn as in the code released with the CLIMB paper.

    There is no upper bound, and early tasks tend to be larger. Use it only to compare with published numbers.

    >>> sum(released_sizes(100, 20, np.random.RandomState(0)))
    100
    """
    # Scale uniform numbers to the total, round down, raise zeros to one, then add the rest from the first task on.
    draws = generator.random_sample(parts).tolist()
    norm = math.fsum(draws)  # fsum rounds once, so all machines scale alike
    sizes = [max(math.floor(draw / norm * total), 1) for draw in draws]
    # Rounding down loses less than one a task, so no task gets more than one.
    for task in range(total - sum(sizes)):
        sizes[task] += 1
    while sum(sizes) > total:
        sizes[sizes.index(max(sizes))] -= 1
    return tuple(sizes)
