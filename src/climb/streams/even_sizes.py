"""A whole cut into nearly equal parts."""

from __future__ import annotations

from itertools import pairwise


def even_sizes(total: int, parts: int) -> tuple[int, ...]:
    """``parts`` sizes that sum to ``total`` and differ by at most one.

    The larger ones are spread over the whole length, so that no end of a stream has more than its share.

    >>> even_sizes(10, 4)
    (2, 3, 2, 3)
    """
    edges = [total * part // parts for part in range(parts + 1)]
    return tuple(after - before for before, after in pairwise(edges))
