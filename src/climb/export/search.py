"""The images nearest to one image, by the cosine between their features."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from climb.errors import InputError
from climb.export.embed import Embedded, embed
from climb.export.feature_files import SUFFIXES, read_features
from climb.export.image_files import decode_one, images_of
from climb.export.opened import OpenModel
from climb.export.stored import stored_images

MEMORY = "memory"
"""Where to search, when it is not a folder or a file."""
SAME = 0.999
"""Least cosine between two features of one image by one model: devices round differently."""
Vector = np.ndarray[tuple[int], np.dtype[np.float32]]
log = logging.getLogger("climb.export")


@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """An image that is near."""

    name: str
    """Its path, or which image of the stream it was."""
    similarity: float
    """Cosine between its features and those of the image asked for: 1 for the image itself."""
    path: Path | None = None
    """Its file; None where it lies in a memory, an archive or a video."""
    pixels: torch.Tensor | None = None
    """uint8 (3, H, W), of an image that lies in a memory."""


def search(model: OpenModel, image: str | Path, *, within: str | Path = MEMORY, top: int = 10) -> list[Found]:
    """The ``top`` images nearest to ``image``, nearest first.

    ``within``: "memory" (what the learner remembers), a folder of images, or a file that `write_features` wrote.
    """
    if top < 1:
        raise InputError(f"top is {top}; it must be at least 1")
    query = model.features(decode_one(image, model.saved.image_size).unsqueeze(0))[0].numpy()
    if str(within) == MEMORY:
        stored = stored_images(model)
        rows = Embedded(paths=[str(row) for row in range(len(stored.names))], features=stored.features)
        return [
            replace(found, name=stored.names[int(found.name)], pixels=stored.images[int(found.name)])
            for found in nearest(query, [rows], top)
        ]
    place = Path(within).expanduser()
    if place.suffix in SUFFIXES and not place.is_dir():
        batches = _compared(model, place)
    else:
        batches = embed(model, images_of(place, model.saved.image_size))
    return [replace(found, path=_own_file(found.name)) for found in nearest(query, batches, top)]


def _compared(model: OpenModel, features: Path) -> Iterator[Embedded]:
    """The features in a file. If an image whose file is still there has others by this model, a warning says so."""
    batches = read_features(features)
    for number, batch in enumerate(batches):
        if number == 0:
            row = next((row for row, path in enumerate(batch.paths[:100]) if Path(path).is_file()), None)
            if row is not None and not _gives(model, batch.paths[row], batch.features[row]):
                log.warning(
                    "%s was written by another model, or by this one before it learned on: similarities to it mean "
                    "little; write it anew with climb embed",
                    features,
                )
        yield batch


def _gives(model: OpenModel, path: str, features: Vector) -> bool:
    """Whether a model gives an image these features, as far as can be told."""
    try:
        now = model.features(decode_one(path, model.saved.image_size).unsqueeze(0))[0].numpy()
    except InputError:  # it cannot be read any more
        return True
    if len(now) != len(features):
        return True  # refused later, with both lengths
    return bool(now @ features >= SAME * np.linalg.norm(now) * np.linalg.norm(features))


def _own_file(name: str) -> Path | None:
    """The file that an image is; None for one inside an archive or a video, named by it and a place there."""
    container, inside, _ = name.rpartition("#")
    return None if inside and Path(container).is_file() and not Path(name).is_file() else Path(name)


def nearest(query: Vector, batches: Iterable[Embedded], top: int) -> list[Found]:
    """The ``top`` rows of all batches with the largest cosine to ``query`` (f,), a batch in memory at a time.

    Of rows that are equally near the earlier ones come first.

    >>> rows = Embedded(paths=["a", "b"], features=np.float32([[0, 3], [2, 0]]))
    >>> [(found.name, found.similarity) for found in nearest(np.float32([1, 0]), [rows], 1)]
    [('b', 1.0)]
    """
    best: list[tuple[float, int, str]] = []
    seen = 0
    length = max(float(np.linalg.norm(query)), 1e-12)
    for batch in batches:
        if batch.features.shape[1] != len(query):
            raise InputError(
                f"the features searched have {batch.features.shape[1]} numbers, this model's have {len(query)}: "
                "they are another model's; embed the images again"
            )
        norms = np.maximum(np.linalg.norm(batch.features, axis=1), 1e-12)
        # Not as a product of matrices, which rounds equal rows unlike at different places.
        cosines = (batch.features * query).sum(axis=1) / (norms * length)
        rows = np.flatnonzero(np.isfinite(cosines))  # what other programs wrote may hold no numbers
        rows = rows[np.argsort(-cosines[rows], kind="stable")][:top]  # earlier images first among equals
        best = heapq.nlargest(
            top, [*best, *((float(cosines[row]), -(seen + int(row)), batch.paths[row]) for row in rows)]
        )
        seen += len(batch.paths)
    if not best:
        raise InputError("there is no image to search in: none could be read")
    return [Found(name=path, similarity=cosine) for cosine, _, path in best]
