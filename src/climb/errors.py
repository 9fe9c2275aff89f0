"""Exceptions, with messages that say what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

Entry = TypeVar("Entry")


LONGEST = 200  # characters of a name in a message


class ClimbError(Exception):
    """An operation failed. The command line prints the message and exits with code 1."""


class InputError(ClimbError, ValueError):
    """An argument or a file is invalid. The command line prints the message and exits with code 2."""


class DamagedFile(ClimbError):
    """A file of climb does not hold what was written to it, or belongs to something else."""


def first_few(items: Iterable[object], limit: int = 5) -> str:
    """The first items, separated by commas, and the count of the others.

    >>> first_few("abc"), first_few("abc", limit=2)
    ('a, b, c', 'a, b and 1 more')
    """
    texts = [str(item) for item in items]
    more = f" and {len(texts) - limit} more" if len(texts) > limit else ""
    return ", ".join(texts[:limit]) + more


def unknown(kind: str, name: object, allowed: Iterable[str]) -> InputError:
    """The error for an unknown name, with the allowed names and the nearest one.

    >>> str(unknown("method", "clim", ["climb", "finetune"]))
    "unknown method 'clim'; did you mean 'climb'? Allowed: climb, finetune"
    """
    name, names = str(name)[:LONGEST].replace("\n", "\\n"), sorted(allowed)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return InputError(f"unknown {kind} '{name}'{hint} Allowed: {', '.join(names)}")


def find_named(kind: str, name: str, table: Mapping[str, Entry]) -> Entry:
    """The entry of this name; an unknown name is refused.

    >>> find_named("side", "left", {"left": 1, "right": 2})
    1
    """
    if name not in table:
        raise unknown(kind, name, table)
    return table[name]
