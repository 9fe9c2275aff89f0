"""`climb methods`: what can be compared, and what can be learned."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text


def methods() -> None:
    """List the methods: what each is made of, who proposed it, its rate, and what was measured of it on real data.

    Below them the objectives, for --objective, each with the package that brings it. A package whose methods and
    objectives cannot be loaded is named, with the reason.
    """
    from climb.plugins import load_plugins

    broken = load_plugins()
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:  # a pipe has no width of its own
        console = Console(highlight=False, width=140)
    console.print(_methods())
    console.print(_objectives())
    for reason in broken:
        print(f"climb: {reason}", file=sys.stderr)


def _methods() -> Table:
    from climb.config import LearnerConfig
    from climb.methods import METHODS, choose_method, parts_of
    from climb.presets import apply_preset
    from climb.verified import Verified, verified

    def at_its_rate(found: Verified) -> bool:
        """Whether the method ran at the rate that it starts from; others were tried in searches."""
        return found.lr == choose_method(apply_preset(LearnerConfig(), found.preset), found.method).lr

    table = _table("method", "what", "memory, batch, objective, alignment", "paper", "lr", "measured here")
    for name, method in METHODS.items():
        rate = _rate(method.lr) + ("" if method.views is None else f"\nviews {method.views}")
        measured = [str(found) for found in verified() if found.method == name and at_its_rate(found)]
        try:
            parts = "\n".join(parts_of(name).values())
        except Exception as error:  # somebody else's; the others are listed all the same
            parts = f"cannot be built: {error!r}"
        found = (name, method.summary, parts, method.paper, rate, "\n".join(measured) or "not yet")
        table.add_row(*map(Text, found))  # a bracket in somebody's words is no markup
    return table


def _objectives() -> Table:
    from climb.workshop import OBJECTIVES

    table = _table("objective", "what", "paper", "lr", "package")
    for name, objective in OBJECTIVES.items():
        package = objective.make.__module__.partition(".")[0]
        table.add_row(*map(Text, (name, objective.summary, objective.paper, _rate(objective.lr), package)))
    return table


def _table(*headings: str) -> Table:
    table = Table(show_lines=True)
    for heading in headings:
        table.add_column(heading, overflow="fold", no_wrap=heading in ("method", "objective", "lr"))
    return table


def _rate(lr: float | None) -> str:
    return "preset's" if lr is None else f"{lr:g}"
