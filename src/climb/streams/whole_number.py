"""Whole numbers as they come from people, JSON and numpy."""

from __future__ import annotations

import numpy as np

from climb.errors import InputError


def whole_number(value: object, name: str, *, least: int | None = None) -> int:
    """``value`` as a plain int; an `InputError` that speaks of ``name`` when it is none or below ``least``.

    >>> whole_number(np.int64(3), "tasks", least=1)
    3
    """
    # bool is an int to Python; in a manifest, true is a mistake and not the number one.
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} must be a whole number, not {value!r}")
    if least is not None and value < least:
        raise InputError(f"{name} must be {least} or more, not {value}")
    return int(value)
