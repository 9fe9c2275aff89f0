"""`climb search`: the images nearest to one image."""

from __future__ import annotations

from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table


def search(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    image: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")],
    /,
    *,
    within: Annotated[str, tyro.conf.arg(name="in", metavar="memory|IMAGES|FILE")] = "memory",
    top: int = 10,
    html: str | None = None,
    out: str | None = None,
    device: str = "auto",
) -> None:
    """Find the images whose features are nearest to those of one image, by cosine.

    Args:
        model: a run's or a learner's folder, an export, or a file of Climb.save.
        image: the image to find others like.
        within: memory (what the learner remembers), images (a folder, tar shards), or a file that climb embed wrote.
        top: how many to find.
        html: write a page with the pictures, complete in itself, to this file.
        out: copy the images found into this folder.
        device: auto, cpu, cuda, cuda:N or mps.
    """
    from climb.cli import OneLine
    from climb.export import open_model
    from climb.export import search as searched
    from climb.export.found_page import copy_found, write_page

    found = searched(open_model(model, device=device), image, within=within, top=top)
    table = Table()
    table.add_column("", justify="right")
    table.add_column("similarity", justify="right")
    table.add_column("image", overflow="fold")
    for place, one in enumerate(found, start=1):
        table.add_row(str(place), f"{one.similarity:.4f}", one.name.translate(OneLine.CONTROLS))
    Console(highlight=False, markup=False, soft_wrap=True).print(table)
    if html is not None:
        print(write_page(html, image, found))
    if out is not None:
        copy_found(out, found)
        print(out)
