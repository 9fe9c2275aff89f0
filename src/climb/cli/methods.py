"""`climb methods`: what can be compared."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table


def methods() -> None:
    """List the methods: what each is, who proposed it, and the rates it starts from."""
    from climb.methods import METHODS, load_plugins

    load_plugins()
    table = Table()
    for heading in ("method", "what", "paper", "lr", "alignment weight"):
        table.add_column(heading, overflow="fold")
    for name, method in METHODS.items():
        rate = "preset's" if method.lr is None else f"{method.lr:g}"
        weight = "preset's" if method.alignment_weight is None else f"{method.alignment_weight:g}"
        table.add_row(name, method.summary, method.paper, rate, weight)
    Console(highlight=False, width=120).print(table)
