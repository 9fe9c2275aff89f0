"""Search for the images nearest to one image, by the cosine of their centred features."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from climb.arguments import checked
from climb.errors import InputError
from climb.export.embed import Embedded, decode_one, embed, images_of
from climb.export.feature_files import SUFFIXES, read_features
from climb.export.model_loader import OpenModel, stored_images

MEMORY = "memory"
"""Value of ``within`` for the images in memory."""
SAME = 0.999
"""Least cosine between two features of one image by one model. Devices round differently."""
Vector = np.ndarray[tuple[int], np.dtype[np.float32]]
log = logging.getLogger("climb.export")


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchResult:
    """One of the nearest images."""

    name: str
    """Its path, or its number in the stream."""
    similarity: float
    """Cosine between its features and those of the query, relative to the centre of the model's memory: 1 for the query
    itself, about 0 for an image that has nothing in common with it."""
    path: Path | None = None
    """Its file; None if it is in a memory, an archive or a video."""
    pixels: torch.Tensor | None = None
    """uint8 (3, H, W), for an image in a memory."""


@checked()
def search(model: OpenModel, image: str | Path, *, within: str | Path = MEMORY, top: int = 10) -> list[SearchResult]:
    """The ``top`` images nearest to ``image``, nearest first.

    Args:
        model: its encoder computes the features.
        image: the file of the query.
        within: "memory" (the images in memory of the learner), a folder of images, or a file of `write_features`.
        top: number of results.
    """
    if top < 1:
        raise InputError(f"top is {top}; it must be at least 1")
    pixels = decode_one(image, model.saved.image_size, model.pixel_range)
    query = model.comparable(model.features(pixels.unsqueeze(0)).numpy())[0]
    if str(within) == MEMORY:
        stored = stored_images(model)
        rows = Embedded(paths=[str(row) for row in range(len(stored.names))], features=stored.features)
        return [
            replace(result, name=stored.names[int(result.name)], pixels=stored.images[int(result.name)])
            for result in nearest(query, _comparable([rows], model), top)
        ]
    location = Path(within).expanduser()
    if location.suffix in SUFFIXES and not location.is_dir():
        batches = _features_in(location, model)
    else:
        batches = embed(model, images_of(location, model.saved.image_size, model.pixel_range))
    found = nearest(query, _comparable(batches, model), top)
    return [replace(result, path=own_file(result.name)) for result in found]


def _comparable(batches: Iterable[Embedded], model: OpenModel) -> Iterator[Embedded]:
    """The batches with features made comparable, unless a file has them so (climb embed --comparable)."""
    already: bool | None = None
    for batch in batches:
        if already is None:
            already = _are_comparable(batch.features)
        fits = model.centre is None or batch.features.shape[1] == len(
            model.centre
        )  # otherwise `nearest` raises an error
        yield batch if already or not fits else replace(batch, features=model.comparable(batch.features))


def _are_comparable(features: NDArray[np.float32]) -> bool:
    """Whether features are unit vectors. Those of an encoder have any length."""
    lengths = np.linalg.norm(features, axis=1)
    return bool(np.allclose(lengths[np.isfinite(lengths)], 1.0, atol=1e-4))


def _features_in(features: Path, model: OpenModel) -> Iterator[Embedded]:
    """Read a file of features. Warns if one of its images has other features by this model."""
    batches = read_features(features)
    for number, batch in enumerate(batches):
        if number == 0:
            row = next((row for row, path in enumerate(batch.paths[:100]) if Path(path).is_file()), None)
            if row is not None and not _matches(model, batch.paths[row], batch.features[row]):
                cause = "was written by another model, or by this one before further training"
                log.warning("%s %s, so its similarities mean little; write it again with climb embed", features, cause)
        yield batch


def _matches(model: OpenModel, path: str, features: Vector) -> bool:
    """Whether a model computes these features for an image. True if the image cannot be read."""
    try:
        rows = model.features(decode_one(path, model.saved.image_size, model.pixel_range).unsqueeze(0)).numpy()
    except InputError:
        return True
    now = (model.comparable(rows) if _are_comparable(features[np.newaxis]) else rows)[0]
    if len(now) != len(features):
        return True  # `nearest` raises an error with both lengths
    return bool(now @ features >= SAME * np.linalg.norm(now) * np.linalg.norm(features))


def own_file(name: str) -> Path | None:
    """The file of an image; None for ``archive#position``, an image inside an archive or a video."""
    container, inside, _ = name.rpartition("#")
    return None if inside and Path(container).is_file() and not Path(name).is_file() else Path(name)


def nearest(query: Vector, batches: Iterable[Embedded], top: int) -> list[SearchResult]:
    """The ``top`` rows of all batches with the largest cosine to ``query`` (f,), with one batch in memory at a time.

    Among equal rows, earlier ones come first.

    >>> rows = Embedded(paths=["a", "b"], features=np.float32([[0, 3], [2, 0]]))
    >>> [(result.name, result.similarity) for result in nearest(np.float32([1, 0]), [rows], 1)]
    [('b', 1.0)]
    """
    best: list[tuple[float, int, str]] = []
    seen = 0
    length = max(float(np.linalg.norm(query)), 1e-12)
    for batch in batches:
        if batch.features.shape[1] != len(query):
            sizes = f"have {batch.features.shape[1]} numbers, those of this model {len(query)}"
            raise InputError(f"the features to search {sizes}: they are from another model; embed the images again")
        norms = np.maximum(np.linalg.norm(batch.features, axis=1), 1e-12)
        # Not a matrix product, which may round equal rows differently.
        cosines = (batch.features * query).sum(axis=1) / (norms * length)
        rows = np.flatnonzero(np.isfinite(cosines))  # files of other programs may contain NaN
        rows = rows[np.argsort(-cosines[rows], kind="stable")][:top]  # earlier images first among equals
        best += [(float(cosines[row]), -(seen + int(row)), batch.paths[row]) for row in rows]
        best = heapq.nlargest(top, best)
        seen += len(batch.paths)
    if not best:
        raise InputError("there is no image to search: none could be read")
    return [SearchResult(name=path, similarity=cosine) for cosine, _, path in best]
