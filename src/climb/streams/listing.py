"""Many numbers in one short line of a message."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN = 10


def listing(numbers: Iterable[int]) -> str:
    """The first few of ``numbers``, in order, and how many more there are.

    >>> listing([3, 1, 2]), listing(range(13))
    ('1, 2, 3', '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more')
    >>> listing(range(10))
    '0, 1, 2, 3, 4, 5, 6, 7, 8, 9'
    """
    ordered = sorted(numbers)
    rest = len(ordered) - _SHOWN
    return ", ".join(map(str, ordered[:_SHOWN])) + (f" and {rest} more" if rest > 0 else "")
