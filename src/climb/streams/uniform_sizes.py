"""Irregular task sizes without a preference: every way to cut is equally likely."""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from climb.errors import InputError

# The rank is drawn with this many bits more than it needs. No composition is then likelier than another by
# more than one part in 2**128, and the number of random bytes used is known beforehand.
_SPARE_BITS = 128


def uniform_sizes(total: int, parts: int, cap: int, generator: np.random.RandomState) -> tuple[int, ...]:
    """One of all compositions of ``total`` into ``parts`` sizes from 1 to ``cap``, all equally likely.

    The compositions are counted, one is chosen by its rank in lexicographic order, and its sizes are read off
    one by one.

    >>> uniform_sizes(6, 3, 2, np.random.RandomState(0))
    (2, 2, 2)
    """
    if not parts <= total <= parts * cap:
        raise InputError(
            f"{total} classes cannot be cut into {parts} tasks of 1 to {cap} classes, which hold {parts} to"
            f" {parts * cap}; use at most {total} tasks and a cap of {-(-total // parts)} or more"
        )
    ways = count_compositions(total, parts, cap)
    rank = _uniform_below(ways[parts][total], generator)
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
    """``ways[k][s]``, exactly: how many sequences of ``k`` sizes from 1 to ``cap`` sum to ``s``.

    >>> count_compositions(6, 3, 3)[3][6]
    7
    """
    ways = [[1] + [0] * total]
    for _ in range(parts):
        # sums[s] is the sum of the row before s, so that a window of it is one subtraction.
        sums = list(accumulate(ways[-1], initial=0))
        ways.append([sums[s] - sums[max(s - cap, 0)] for s in range(total + 1)])
    return ways


def _uniform_below(bound: int, generator: np.random.RandomState) -> int:
    length = (bound.bit_length() + _SPARE_BITS + 7) // 8
    return int.from_bytes(generator.bytes(length), "little") * bound >> (8 * length)
