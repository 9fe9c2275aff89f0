"""`climb methods`: what can be compared, and what can be learned."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

LEGEND = """parts: memory + batch + objective + alignment
lr: the learning rate that it starts from
measured: on real data, at that rate, in this repository
"""


def methods() -> None:
    """List the methods: what each is made of, who proposed it, its rate, and what was measured of it on real data.

    Below them the objectives, for --objective, each with the package that brings it. A package whose methods and
    objectives cannot be loaded is named, with the reason.
    """
    from climb.plugins import load_plugins

    broken = load_plugins()
    console = Console(highlight=False)
    console.print(LEGEND)
    console.print("[bold underline]methods[/]\n")
    console.print(_methods())
    console.print("[bold underline]objectives[/]\n")
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

    listed = _list()
    for name, method in METHODS.items():
        measured = [str(found) for found in verified() if found.method == name and at_its_rate(found)]
        try:
            parts = " + ".join(parts_of(name).values())
        except (Exception, SystemExit) as error:  # somebody else's; the others are listed all the same
            parts = f"cannot be built: {error!r}"
        views = {} if method.views is None else {"views": method.views}
        package = _package(method.build)
        theirs = {} if package == "climb" else {"package": package}
        found = {"what": method.summary, "parts": parts, "paper": method.paper, "lr": _rate(method.lr), **views}
        _add(listed, name, found | {"measured": "\n".join(measured) or "not yet"} | theirs)
    return listed


def _objectives() -> Table:
    from climb.workshop import OBJECTIVES

    listed = _list()
    for name, objective in OBJECTIVES.items():
        found = {"what": objective.summary, "paper": objective.paper, "lr": _rate(objective.lr)}
        _add(listed, name, found | {"package": _package(objective.make)})
    return listed


def _package(function: Callable[..., Any]) -> str:
    """Who brings it."""
    function = getattr(function, "func", function)  # of a `functools.partial`, whose own module is Python's
    return str(getattr(function, "__module__", repr(function))).partition(".")[0]


def _list() -> Table:
    """Entries one below the other, each with its particulars: legible in a terminal of 80 columns."""
    listed = Table.grid(padding=(0, 2, 0, 0))
    listed.add_column(style="bold", no_wrap=True)
    listed.add_column(style="dim", no_wrap=True)
    listed.add_column(overflow="fold")
    return listed


def _add(listed: Table, name: str, particulars: dict[str, str]) -> None:
    for number, (label, value) in enumerate(particulars.items()):
        # As text: a bracket in somebody's words is no markup.
        listed.add_row(Text(name if number == 0 else ""), Text(label), Text(value))
    listed.add_row()


def _rate(lr: float | None) -> str:
    return "preset's" if lr is None else f"{lr:g}"
