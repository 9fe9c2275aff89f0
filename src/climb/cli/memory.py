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


VERBS = ("score",)
