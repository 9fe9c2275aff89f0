"""`climb methods`: what can be compared."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text


def methods() -> None:
    """List the methods: what each is made of, who proposed it, its rate, and what was measured of it on real data."""
    from climb.config import LearnerConfig
    from climb.methods import METHODS, choose_method, parts_of
    from climb.plugins import load_plugins
    from climb.presets import apply_preset
    from climb.verified import Verified, verified

    def told(found: Verified) -> str:
        """What was measured, with the rate where that is not the one the method starts from."""
        usual = choose_method(apply_preset(LearnerConfig(), found.preset), found.method).lr
        return str(found) if found.lr == usual else f"{found}, lr {found.lr:g}"

    load_plugins()
    table = Table(show_lines=True)
    for heading in ("method", "what", "memory, batch, objective, alignment", "paper", "lr", "measured here"):
        table.add_column(heading, overflow="fold", no_wrap=heading in ("method", "lr"))
    for name, method in METHODS.items():
        rate = "preset's" if method.lr is None else f"{method.lr:g}"
        rate += "" if method.views is None else f"\nviews {method.views}"
        measured = [told(found) for found in verified() if found.method == name]
        try:
            parts = "\n".join(parts_of(name).values())
        except Exception as error:  # somebody else's; the others are listed all the same
            parts = f"cannot be built: {error!r}"
        found = (name, method.summary, parts, method.paper, rate, "\n".join(measured) or "not yet")
        table.add_row(*map(Text, found))  # a bracket in somebody's words is no markup
    narrow = Console(highlight=False)
    console = narrow if narrow.is_terminal else Console(highlight=False, width=140)  # a pipe has no width of its own
    console.print(table)
