"""`climb data`: which datasets there are, and where they are looked for."""

from __future__ import annotations

import os

from rich.console import Console
from rich.table import Table


def data() -> None:
    """List the datasets and the folders they are looked for in."""
    from climb.cache import cache_dir
    from climb.datasets import names

    table = Table()
    table.add_column("dataset")
    table.add_column("what, and where it is looked for", overflow="fold")
    for name, summary in names().items():
        table.add_row(name, summary)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print("ROOT: what --data names")
    console.print(f"$CLIMB_DATA: {os.environ.get('CLIMB_DATA') or '(not set)'}")
    console.print(f"cache: {cache_dir()} (set $CLIMB_CACHE to move it)")
