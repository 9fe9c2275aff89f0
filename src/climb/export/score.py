"""Score images by their distance to the memory of a model: which are new to it?"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from climb.arguments import checked
from climb.errors import InputError
from climb.export.embed import Picture, embed, images_of
from climb.export.model_loader import OpenModel, StoredImages, stored_images
from climb.files import write_atomic, write_text
from climb.novelty import ReferenceSet
from climb.sources.source import import_extra

SUFFIXES = (".csv", ".parquet", ".jsonl")
COLUMNS = ("path", "score", "nearest")


@dataclass(frozen=True, kw_only=True)
class ImageScore:
    """The novelty of one image."""

    path: str
    score: float
    """Share of stored images that lie closer to the other stored ones, 0..1. Near 1, the image is new."""
    nearest: str
    """The nearest stored image."""


@checked()
def score(model: OpenModel, images: str | Path | Iterable[Path | Picture]) -> Iterator[ImageScore]:
    """The novelty of images to the memory of a model, in their order, in bounded memory.

    Args:
        model: its encoder computes the features, its memory holds the stored images.
        images: a finite source, as of `images_of`, or pictures.

    Raises:
        InputError: the model stores no images, or there is none to score.
    """
    stored = stored_images(model)
    return _scores(model, stored, pictures_of(model, images))


def _scores(model: OpenModel, stored: StoredImages, pictures: Iterable[Picture]) -> Iterator[ImageScore]:
    reference = ReferenceSet(torch.from_numpy(stored.features))
    empty = True
    for batch in embed(model, pictures):
        empty = False
        found = reference.score(torch.from_numpy(batch.features))
        rows = zip(batch.paths, found.scores.tolist(), found.nearest.tolist(), strict=True)
        yield from (ImageScore(path=path, score=value, nearest=stored.names[row]) for path, value, row in rows)
    if empty:
        raise InputError("there is no image to score: none could be read")


def pictures_of(model: OpenModel, images: str | Path | Iterable[Path | Picture]) -> Iterable[Picture]:
    """The pictures of a source at the size of a model; a list of pictures as it is."""
    if isinstance(images, list) and images and isinstance(images[0], Picture):
        return images
    return images_of(images, model.saved.image_size, model.pixel_range)  # type: ignore[arg-type]


def check_table(path: str | Path, suffixes: Sequence[str] = SUFFIXES) -> Path:
    """Reject a table with another suffix, or whose library is missing.

    >>> check_table("scores.xlsx")
    Traceback (most recent call last):
    climb.errors.InputError: the output must end in .csv, .parquet or .jsonl; given scores.xlsx
    """
    path = Path(path).expanduser()
    if path.suffix not in suffixes:
        raise InputError(f"the output must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}; given {path}")
    if path.suffix == ".parquet":
        import_extra("pyarrow", ".parquet files", "data")
    return path


def write_table(path: str | Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """Write rows to a `.csv`, `.parquet` or `.jsonl` file and return their number. Replaces a file at the end."""
    path = check_table(path)
    listed = [tuple(row) for row in rows]
    if path.suffix == ".parquet":
        arrow, parquet = import_extra("pyarrow", "", "data"), import_extra("pyarrow.parquet", "", "data")
        values = {name: [_utf8(row[place]) for row in listed] if listed else [] for place, name in enumerate(columns)}

        def write(temporary: Path) -> None:
            with open(temporary, "wb") as body:
                parquet.write_table(arrow.table(values), body)

        write_atomic(path, write)
    elif path.suffix == ".jsonl":
        lines = (json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in listed)
        write_text(path, "".join(f"{line}\n" for line in lines))
    else:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(listed)
        write_text(path, text.getvalue())
    return len(listed)


def _utf8(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def write_scores(path: str | Path, scores: Iterable[ImageScore]) -> list[ImageScore]:
    """Write scores with the columns path, score and nearest, and return them."""
    path = check_table(path)
    listed = list(scores)
    write_table(path, COLUMNS, ((one.path, round(one.score, 8), one.nearest) for one in listed))
    return listed
