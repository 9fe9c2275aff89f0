"""`climb recipes`: the named experiments."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from climb.recipes import RECIPES, describe, get_recipe


def recipes() -> None:
    """List the named experiments."""
    table = Table()
    for heading in ("recipe", "dataset", "tasks", "network", "what"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "recipe")  # to be copied whole
    for name in RECIPES:
        config = get_recipe(name)
        table.add_row(name, config.data.dataset, str(config.stream.tasks), config.learner.backbone, describe(name))
    console = Console(highlight=False)
    console.print(table)
    console.print("run one: climb run RECIPE --preset paper|default|reference --seed 0")
