"""Names of methods and objectives: given once, and found also where installed packages bring them by entry points."""

from __future__ import annotations

import importlib.metadata
import math
import re
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, TypeVar

from climb.errors import InputError, unknown

GROUP = "climb.methods"
HOW = f"installed and named under the entry point group {GROUP} (in Python: once their module is imported)"
NAME = re.compile(r"\w[\w.+-]*")

Registered = TypeVar("Registered")


def load_plugins() -> list[str]:
    """Import what installed packages name under ``climb.methods``: importing it registers methods and objectives.

    Gives a sentence for each package that cannot be imported. It keeps none of the others from being loaded.
    """
    broken = []
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            entry.load()
        except (Exception, SystemExit) as error:  # somebody else's code, which may fail in any way
            package = "a package" if entry.dist is None else f"the package '{entry.dist.name}'"
            broken.append(
                f"{package} names '{entry.value}' under {GROUP}, which cannot be imported: "
                f"{type(error).__name__}: {error}. Mend or uninstall it: what it would register after that is missing"
            )
    return broken


def find_registered(kind: str, name: str, registry: Mapping[str, Registered]) -> Registered:
    """What is registered under ``name``: one of ours, or one that an installed package brings.

    A package that cannot be imported is spoken of only if the name is still missing when all others are loaded.

    >>> find_registered("number", "one", {"one": 1})
    1
    """
    broken = [] if name in registry else load_plugins()
    if name not in registry:
        missing = f"{unknown(kind, name, registry)}; and those of your own packages, {HOW}"
        raise InputError("\n".join([missing, *(f"It may be missing because {reason}" for reason in broken)]))
    return registry[name]


def check_words(kind: str, name: str, *, paper: str) -> None:
    """Refuse a name that no folder could have, and a citation that nobody could read.

    >>> check_words("method", "../mine", paper="me")
    Traceback (most recent call last):
    climb.errors.InputError: a method cannot be called '../mine'; use letters, digits, '_', and after the
    first of them '.', '+', '-'
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            f"a {kind} cannot be called {name!r}; use letters, digits, '_', and after the first of them '.', '+', '-'"
        )
    if not isinstance(paper, str) or not paper.strip():
        raise InputError(f"{kind} '{name}' has paper={paper!r}; say in words who proposed it")


def check_rates(kind: str, name: str, *, lr: float | None, alignment_weight: float | None) -> None:
    """Refuse rates that are no numbers, or that nothing could be learned at."""
    if lr is not None and not (_is_number(lr) and lr > 0):
        raise InputError(f"{kind} '{name}' has the learning rate {lr!r}; it must be above 0 and a number, or None")
    if alignment_weight is not None and not (_is_number(alignment_weight) and alignment_weight >= 0):
        raise InputError(
            f"{kind} '{name}' has the alignment weight {alignment_weight!r}; it must be 0 or above and a number, "
            "or None"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and -math.inf < value < math.inf  # type: ignore[operator]  # typed for float alone


def refuse_taken(kind: str, name: str, old: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Refuse a second function under a name: the order of imports alone would tell which of them is meant.

    >>> refuse_taken("a method", "mine", load_plugins, find_registered)
    Traceback (most recent call last):
    climb.errors.InputError: there is a method 'mine' already (climb.plugins.load_plugins); give
    climb.plugins.find_registered another name
    """
    there, here = (_place(each) for each in (old, new))
    if there != here:  # the same one again: its module has been reloaded
        raise InputError(f"there is {kind} '{name}' already ({there}); give {here} another name")


def _place(function: Callable[..., Any]) -> str:
    """Where a function is defined; of what has no name, such as a `functools.partial`, what Python prints."""
    return f"{function.__module__}.{function.__qualname__}" if hasattr(function, "__qualname__") else repr(function)


def first_line(text: str | None) -> str:
    """What a docstring begins with; "" of one that says nothing.

    >>> first_line("Keeps the oldest images.  And more."), first_line("  \\n"), first_line(None)
    ('Keeps the oldest images.  And more.', '', '')
    """
    return next(iter((text or "").strip().splitlines()), "")
