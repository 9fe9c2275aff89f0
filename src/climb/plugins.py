"""Names of methods and objectives: given once, and found also where installed packages bring them by entry points."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from climb.errors import InputError, unknown

GROUP = "climb.methods"

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
                f"{type(error).__name__}: {error}. Mend or uninstall it"
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
        missing = str(unknown(kind, name, registry))
        raise InputError("\n".join([missing, *(f"It may be missing because {reason}" for reason in broken)]))
    return registry[name]


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
