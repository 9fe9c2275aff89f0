"""How many images have gone by, on a terminal; silent where nobody looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

Thing = TypeVar("Thing")


@contextmanager
def counting(label: str, things: Iterable[Thing]) -> Iterator[Iterator[Thing]]:
    """The same things, counted as they are taken. How many will come is not known: a stream has no length."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=None)

        def counted() -> Iterator[Thing]:
            for thing in things:
                progress.advance(task)
                yield thing

        yield counted()
