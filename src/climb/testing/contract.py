"""Errors for violated contracts, including exceptions raised by the code under test."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

import climb

LIBRARIES = tuple(str(Path(str(module.__file__)).parent) + os.sep for module in (climb, torch, np))


class ContractViolation(AssertionError):
    """A part violates its contract. The message names the contract."""


def require(condition: bool, message: str) -> None:
    """Raise `ContractViolation` unless the condition holds."""
    if not condition:  # not an assert statement, which `python -O` would remove
        raise ContractViolation(message)


@contextmanager
def contract(name: str) -> Iterator[None]:
    """Turn every exception inside into a `ContractViolation` with the exception's type, file and line.

    >>> with contract("a memory can be built"):  # doctest: +ELLIPSIS
    ...     [].pop()
    Traceback (most recent call last):
    climb.testing.contract.ContractViolation: a memory can be built: IndexError: pop from empty list (<doctest ...
    """
    try:
        yield
    except ContractViolation:
        raise
    except Exception as error:  # third-party code may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        frame = ([frame for frame in frames if not frame.filename.startswith(LIBRARIES)] or frames)[-1]
        place = f"{frame.filename}, line {frame.lineno}"  # of the innermost frame outside the libraries
        raise ContractViolation(f"{name}: {type(error).__name__}: {error} ({place})") from error
