"""What goes wrong, said so that a person can act on it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ClimbError(Exception):
    """Something failed while working. The command line prints the message and exits with 1."""


class InputError(ClimbError, ValueError):
    """What was given cannot be used. The command line prints the message and exits with 2."""


def unknown(kind: str, given: str, allowed: Iterable[str]) -> InputError:
    """The error for a name that does not exist: what was given, what is allowed, the nearest valid name.

    >>> str(unknown("method", "clim", ["climb", "finetune"]))
    "unknown method 'clim'; did you mean 'climb'? Allowed: climb, finetune"
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return InputError(f"unknown {kind} '{given}'{hint} Allowed: {', '.join(names)}")
