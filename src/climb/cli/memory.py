"""`climb score`, `select`, `duplicates`: ask a model's memory what is new, what to label, what is double."""

from __future__ import annotations

from typing import Any

from climb.cli.options import options_of, with_settings
from climb.cli.output import OneLine, print_table
from climb.errors import InputError
from climb.settings.config import DataOptions

RANGE = options_of(DataOptions, only=["pixel_range"])


@with_settings(data=RANGE)
def score(model: str, images: str, /, *, out: str, top: int = 10, device: str = "auto", **options: Any) -> None:
    """Score how new images are to a model: 0 is familiar, near 1 is new.

    The score is the share of stored images that lie closer to the other stored ones. It needs no labels: of images like
    the stored ones, about one in a hundred scores above 0.99.

    Args:
        model: a folder of climb run or climb learn, or a file of Climb.save, with stored images.
        images: a folder, one image, tar shards (shards/*.tar), a video, hf:OWNER/NAME, or - for paths
            on standard input.
        out: scores.csv, scores.parquet or scores.jsonl, with the columns path, score and nearest.
        top: number of images to print, the newest first (at least 1).
        device: auto, cpu, cuda, cuda:N or mps.
    """
    from climb import export as library
    from climb.export.score import check_table, write_scores

    if top < 1:
        raise InputError(f"top is {top}; it must be at least 1")
    target = check_table(out)
    opened = library.open_model(model, device=device, **options)
    scores = write_scores(target, library.score(opened, images))
    newest = sorted(scores, key=lambda one: -one.score)[:top]
    rows = [(f"{one.score:.4f}", one.path.translate(OneLine.CONTROLS), one.nearest) for one in newest]
    print_table(("score", "image", "nearest in memory"), rows, numbers=[0])
    print(f"{len(scores):,} images: {target}")


@with_settings(data=RANGE)
def select(
    model: str,
    images: str | None = None,
    /,
    *,
    out: str,
    n: int = 50,
    labelled: str | None = None,
    seed: int = 0,
    device: str = "auto",
    **options: Any,
) -> None:
    """Select the images most worth labelling: typical, different from each other, no near-duplicates.

    Args:
        model: a folder of climb run, climb learn or climb export, or a file of Climb.save.
        images: a folder, tar shards (shards/*.tar), a video, hf:OWNER/NAME, or - for paths on standard input; by
            default the images in the model's memory.
        out: folder for selected.csv, selected.html (a contact sheet) and images (links).
        n: number of images (at least 1).
        labelled: folder of images that have a label already.
        seed: seed of the clusters.
        device: auto, cpu, cuda, cuda:N or mps.
    """
    from climb import export as library
    from climb.export.select import check_folder, write_selection

    check_folder(out)
    opened = library.open_model(model, device=device, **options)
    selected = library.select(opened, images, n=n, labelled=labelled, seed=seed)
    folder = write_selection(out, selected)
    print(f"{len(selected):,} images to label: {folder} (selected.csv, selected.html, images)")


@with_settings(data=RANGE)
def duplicates(
    model: str,
    images: str,
    /,
    *,
    out: str,
    across: str | None = None,
    mirrored: bool = False,
    html: str | None = None,
    device: str = "auto",
    **options: Any,
) -> None:
    """Find near-identical images: resized, recompressed, slightly cropped, brighter or darker.

    Exits with 0 if there are none and with 1 if there are some.

    Args:
        model: a folder of climb run, climb learn or climb export, or a file of Climb.save.
        images: a folder, tar shards (shards/*.tar), a video, hf:OWNER/NAME, or - for paths on standard input.
        out: duplicates.csv, duplicates.parquet or duplicates.jsonl, with the columns group and path.
        across: a second folder; only images that both have are reported.
        mirrored: mirror images count as duplicates.
        html: page with the images side by side; by default beside the list.
        device: auto, cpu, cuda, cuda:N or mps.
    """
    from climb import export as library
    from climb.export.duplicates import write_duplicates
    from climb.export.score import check_table

    target = check_table(out)
    opened = library.open_model(model, device=device, **options)
    found = library.duplicates(opened, images, across=across, mirrored=mirrored)
    page = write_duplicates(target, found, html=html)
    copies = sum(len(group.paths) for group in found.groups)
    print(f"{len(found.groups):,} groups with {copies:,} of {found.images:,} images: {target}, {page}")
    if found.groups:
        raise SystemExit(1)


VERBS = ("score", "select", "duplicates")
