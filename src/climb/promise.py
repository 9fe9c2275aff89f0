"""How the checks of a memory or a method tell a broken promise: by an AssertionError that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from climb.errors import ClimbError


class BrokenPromise(AssertionError):
    """Told apart from an assertion in somebody's own code, which says nothing of what was promised."""


def promise(kept: bool, otherwise: str) -> None:
    """Raise unless it is kept. Not an assert statement: `python -O` must not turn the check off."""
    if not kept:
        raise BrokenPromise(otherwise)


@contextmanager
def promised(otherwise: str) -> Iterator[None]:
    """Work that must not fail: whatever it raises is a broken promise, with the error's own words behind."""
    try:
        yield
    except BrokenPromise:
        raise
    except ClimbError as error:
        raise BrokenPromise(f"{otherwise}: {error}") from error
    except Exception as error:  # somebody else's code, which may fail in any way
        raise BrokenPromise(f"{otherwise}: {type(error).__name__}: {error}") from error
