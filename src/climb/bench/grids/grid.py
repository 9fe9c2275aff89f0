"""What a grid is: runs, and where each of them stands in a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from climb.bench.cell import Layout
from climb.config import RunConfig
from climb.errors import InputError

Scale = Literal["full", "tiny"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a person asks of a grid; what is left out, the paper decides."""

    dataset: str = "cifar100"
    """Which images (``climb data``)."""
    methods: tuple[str, ...] = ()
    """Only these methods; none named takes the paper's rows."""
    seeds: tuple[int, ...] = ()
    """Only these seeds; none named takes as many as the paper's, from ``first_seed`` on."""
    first_seed: int = 0
    """The first of them, where none is named."""
    tasks: tuple[int, ...] = ()
    """Only these numbers of tasks; none named takes the paper's columns."""
    scale: Scale = "full"
    """"tiny" keeps all rows and columns and shrinks everything else, to rehearse on a laptop."""
    preset: str = "paper"
    """Which reading of the paper (`climb.presets`)."""

    def __post_init__(self) -> None:
        """Refuse numbers that mean nothing."""
        for number in self.tasks:
            if number < 1:
                raise InputError(f"a stream has at least 1 task; given {number}")
        if any(seed < 0 for seed in (self.first_seed, *self.seeds)):
            raise InputError(f"a seed is at least 0; given {min((self.first_seed, *self.seeds))}")

    def chosen_seeds(self, paper: int) -> tuple[int, ...]:
        """The seeds asked for, or the paper's number of them; two at most in a rehearsal.

        >>> Request(scale="tiny").chosen_seeds(20)
        (0, 1)
        >>> Request(first_seed=5).chosen_seeds(3)
        (5, 6, 7)
        """
        count = min(paper, 2) if self.scale == "tiny" else paper
        return self.seeds or tuple(range(self.first_seed, self.first_seed + count))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One run of a grid. Entries of equal configurations share the run."""

    row: str
    """Label of its row in the layout."""
    column: str
    """Label of its column."""
    config: RunConfig


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table or a figure before its numbers."""

    layout: Layout
    entries: tuple[Entry, ...]

    @property
    def name(self) -> str:
        """The grid's name: "table-regular"."""
        return self.layout.name


Builder = Callable[[Request], Grid]
