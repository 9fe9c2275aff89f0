"""`climb probe`: what the features are worth on labelled images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from climb.files import write_json

PROBES = (("linear", "the protocol of climb run"), ("knn", "nearest neighbours"), ("ridge", "alpha = 1"))


def probe(
    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    images: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES")],
    /,
    *,
    shots: int | None = None,
    draws: int = 10,
    seed: int = 0,
    out: str | None = None,
    device: str = "auto",
) -> None:
    """Train a linear, a nearest-neighbour and a ridge probe on the frozen features of labelled images.

    IMAGES has a sub-folder for each class, or train and test folders with those; without a test folder, 20 % of
    each class are held out.

    Args:
        model: a run's or a learner's folder, an export, or a file of Climb.save.
        images: folder of labelled images.
        shots: train on that many images of each class only; mean over several draws of them.
        draws: how many draws, with --shots.
        seed: seed of the split, the draws and the probe.
        out: also write the numbers to this JSON file.
        device: auto, cpu, cuda, cuda:N or mps.
    """
    from climb.export import open_model
    from climb.export import probe as probed

    found = probed(open_model(model, device=device), images, shots=shots, draws=draws, seed=seed)
    few = "" if shots is None else f", {shots} a class, mean of {draws} draws"
    table = Table(
        title=f"{model} on {images}: {found['classes']} classes, {found['train_images']} training and "
        f"{found['test_images']} test images{few}",
        title_justify="left",
    )
    table.add_column("probe")
    table.add_column("accuracy", justify="right")
    table.add_column("")
    for name, meaning in PROBES:
        spread = "" if shots is None else f" ± {found[f'{name}_deviation']:.2f}"
        table.add_row(name, f"{found[f'{name}_accuracy']:.2f}{spread}", meaning)
    table.add_row("none", f"{found['majority_accuracy']:.2f}", "always the commonest class")
    Console(highlight=False, markup=False, soft_wrap=True).print(table)
    if out is not None:
        write_json(Path(out), {"model": model, "images": images, **found})
        print(out)
