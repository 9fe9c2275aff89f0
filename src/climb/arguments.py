"""Checks of arguments against type hints, for public classes and functions."""

from __future__ import annotations

import functools
import inspect
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import torch

from climb.errors import InputError, unknown

Function = TypeVar("Function", bound=Callable[..., Any])
LONGEST = 60  # characters of a value in a message
LONGEST_NAME = 255  # bytes of the name of a file
LARGEST = 2**63
VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
NUMBERS: dict[Any, tuple[type, str]] = {int: (Integral, "a whole number"), float: (Real, "a number")}
OTHERS: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "True or False"),
    str: ((str,), "text"),
    Path: ((str, os.PathLike), "a path"),
    dict: ((Mapping,), "a dictionary"),
    Mapping: ((Mapping,), "a dictionary"),
    tuple: ((Sequence,), "a list"),
    list: ((Sequence,), "a list"),
    Sequence: ((Sequence,), "a list"),
    Iterable: ((Iterable,), "an iterable"),
    torch.device: ((str, torch.device), "a device"),
}


def checked(**least: float) -> Callable[[Function], Function]:
    """Check the arguments of a function against its type hints before each call.

    Args:
        least: lower bounds of numbers, and of the numbers in lists.

    >>> @checked(n=1)
    ... def draw(n: int, *, seed: int = 0) -> int:
    ...     return n
    >>> draw(0)
    Traceback (most recent call last):
    climb.errors.InputError: n must be at least 1; given 0
    >>> draw(1, seed="x")
    Traceback (most recent call last):
    climb.errors.InputError: seed must be a whole number; given 'x'
    """

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            hints = _hints(function)
            for name, value in signature.bind(*arguments, **named).arguments.items():
                if name in hints and signature.parameters[name].kind not in VARIABLE:
                    check_value(name, value, hints[name], least=least.get(name))
            return function(*arguments, **named)

        return cast(Function, call)

    return decorate


@functools.cache
def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function)


def check_value(name: str, value: Any, hint: Any, *, least: float | None = None) -> None:
    """Refuse a value of another type than the hint's, or a number below ``least``. Unknown kinds of hints allow all.

    >>> check_value("device", 5, torch.device | str)
    Traceback (most recent call last):
    climb.errors.InputError: device must be a device or text; given 5
    """
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if value is None and type(None) in members:
        return
    words = []
    for member in members:
        if member is type(None):
            continue
        allowed = _allowed(value, member)
        if allowed is None:
            break
        words.append(allowed)
    else:
        if get_origin(hint) is Literal:
            raise unknown(name, value, get_args(hint))
        raise InputError(f"{name} must be {' or '.join(words)}; given {shown(value)}")
    numbers = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if least is not None and not all(number >= least for number in numbers if number is not None):
        raise InputError(f"{name} must be at least {least:g}; given {shown(value)}")
    if torch.device in members:
        check_device(name, value)
    if Path in members and isinstance(value, str | os.PathLike):
        check_path(name, value)


def _allowed(value: Any, hint: Any) -> str | None:
    """None if a value is of a type; otherwise what is allowed."""
    kind = get_origin(hint) or hint
    if kind is Any:
        return None
    if kind is Literal:
        return None if isinstance(value, str) and value in get_args(hint) else " or ".join(map(repr, get_args(hint)))
    if kind in NUMBERS:
        number, words = NUMBERS[kind]
        fits = isinstance(value, number) and not isinstance(value, bool)
        return None if fits and not (isinstance(value, Integral) and abs(int(value)) >= LARGEST) else words
    if kind is Callable or kind is cast(Any, get_origin(Callable[..., Any])):
        return None if callable(value) else "a function"
    if kind not in OTHERS:
        known = isinstance(kind, type) and not getattr(kind, "_is_protocol", False)
        return None if not known or isinstance(value, kind) else f"a {kind.__name__}"
    kinds, words = OTHERS[kind]
    if not isinstance(value, kinds) or (kind in (tuple, list, Sequence) and isinstance(value, str | bytes)):
        return words
    items = [each for each in get_args(hint) if each in (int, float, str, bool)]
    if kinds == (Sequence,) and items and any(all(_allowed(item, each) for each in items) for item in cast(Any, value)):
        return f"a list of {' and '.join(str(_allowed(object(), each)) for each in dict.fromkeys(items))}"
    return None


def check_device(name: str, value: Any) -> None:
    """Refuse a device that torch does not know."""
    try:
        torch.device(value)
    except (RuntimeError, TypeError, ValueError):
        raise InputError(f"unknown {name} {shown(value)}. Allowed: cpu, cuda, cuda:N, mps") from None


def check_path(name: str, value: str | os.PathLike[str]) -> None:
    """Refuse a path that no file system can hold."""
    try:
        parts = os.fsencode(value).split(os.fsencode(os.sep))
    except UnicodeEncodeError:
        parts = [b"\0"]
    if any(b"\0" in part or len(part) > LONGEST_NAME for part in parts):
        raise InputError(
            f"{name} must be a path, without null characters and of names up to 255 bytes; given {shown(value)}"
        )


def check_room(nbytes: float, subject: str, device: torch.device | str = "cpu") -> None:
    """Reject tensors that exceed the main memory of this machine.

    >>> check_room(10**18, "so many images")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    climb.errors.InputError: so many images take 1000000000.0 GB; this machine has ... GB: give smaller sizes
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > available and torch.device(device).type == "cpu":
        raise InputError(
            f"{subject} take {nbytes / 1e9:.1f} GB; this machine has {available / 1e9:.1f} GB: give smaller sizes"
        )


def shown(value: Any) -> str:
    """A value on one line, shortened.

    >>> shown(torch.zeros(2, 2)), shown("x" * 100)[:10]
    ('a Tensor of torch.float32, shape (2, 2)', "'xxxxxxxxx")
    """
    if hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, Real):
        return f"a {type(value).__name__} of {value.dtype}, shape {tuple(value.shape)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
