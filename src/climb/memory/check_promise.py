"""How the checks fail."""

from __future__ import annotations


def promise(kept: bool, otherwise: str) -> None:
    """AssertionError that says ``otherwise``, unless ``kept``.

    Not an assert statement: `python -O` must not turn the checks off.
    """
    if not kept:
        raise AssertionError(otherwise)
