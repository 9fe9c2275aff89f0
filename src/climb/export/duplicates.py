"""Find near-identical images: resized, recompressed, slightly cropped, brighter or darker, optionally mirrored."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from climb.arguments import checked
from climb.errors import InputError
from climb.evaluation.features import batch_size
from climb.export.embed import Picture
from climb.export.model_loader import OpenModel
from climb.export.picture_page import Shown, write_pictures
from climb.export.score import pictures_of, write_table
from climb.images.convert import to_array
from climb.novelty.approximate import approximate_search
from climb.novelty.duplicates import (
    Pair,
    Search,
    close_pairs,
    duplicate_groups,
    exact_search,
    small_change_threshold,
)
from climb.novelty.neighbours import unit_features
from climb.novelty.thumbnails import thumbnails

SAMPLED = 64
"""Images that are changed in small ways to derive the threshold."""
EXACT = 50_000
"""Most images that are searched exactly."""


@dataclass(frozen=True, kw_only=True)
class DuplicateGroup:
    """Near-identical images."""

    paths: list[str]
    pairs: list[tuple[str, str, float]]
    """Two of the paths, and the correlation of their pixels."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Duplicates:
    """The outcome of `duplicates`."""

    groups: list[DuplicateGroup]
    """The largest first."""
    images: int
    """Images looked at, those of ``across`` included."""
    threshold: float
    """Cosine distance of features that small changes stay below."""


@dataclass(frozen=True, kw_only=True, eq=False)
class _Set:
    paths: list[str]
    units: Tensor
    thumbs: Tensor
    sample: Tensor
    """Some of the images, uint8 (n, 3, S, S)."""


@checked()
def duplicates(
    model: OpenModel,
    images: str | Path | Iterable[Path | Picture],
    *,
    across: str | Path | Iterable[Path | Picture] | None = None,
    mirrored: bool = False,
) -> Duplicates:
    """Groups of near-identical images in a source, or across two sources.

    Features of the model propose candidates: pairs that are no farther apart than an image and the same image after a
    small change. Their pixels decide.

    Args:
        model: its encoder computes the features.
        images: a finite source, as of `images_of`, or a list of pictures.
        across: a second source; only pairs with an image of each are reported.
        mirrored: whether mirror images count.

    Raises:
        InputError: a source has no image.
    """
    first = _read(model, images, "IMAGES")
    second = None if across is None else _read(model, across, "--across")
    threshold = _threshold(model, first.sample)
    search: Search = exact_search if len((second or first).paths) <= EXACT else approximate_search
    others = None if second is None else (second.units, second.thumbs)
    pairs = close_pairs(first.units, first.thumbs, threshold, others=others, search=search)
    if mirrored:
        flipped = _read(model, images, "IMAGES", mirror=True)
        whole = others if others is not None else (first.units, first.thumbs)
        found = close_pairs(flipped.units, flipped.thumbs, threshold, others=whole, search=search)
        known = {(pair.first, pair.second) for pair in pairs}
        pairs += [
            pair
            for pair in found
            if (second is not None or pair.first < pair.second) and (pair.first, pair.second) not in known
        ]
    paths = first.paths + ([] if second is None else second.paths)
    if second is not None:
        shift = len(first.paths)
        pairs = [
            Pair(first=one.first, second=one.second + shift, distance=one.distance, correlation=one.correlation)
            for one in pairs
        ]
    groups = []
    for rows in duplicate_groups(pairs, len(paths)):
        inside = [one for one in pairs if one.first in set(rows)]
        listed = [(paths[one.first], paths[one.second], one.correlation) for one in inside]
        groups.append(DuplicateGroup(paths=[paths[row] for row in rows], pairs=listed))
    return Duplicates(groups=groups, images=len(paths), threshold=threshold)


def _read(model: OpenModel, images: str | Path | Iterable[Path | Picture], name: str, *, mirror: bool = False) -> _Set:
    """Features and thumbnails of a source, batch by batch."""
    size = batch_size(model.saved.image_size)
    paths, units, thumbs, sample, waiting = list[str](), list[Tensor](), list[Tensor](), list[Tensor](), list[Tensor]()

    def flush() -> None:
        batch = torch.stack(waiting)
        units.append(unit_features(model.features(batch)))
        thumbs.append(thumbnails(batch))
        waiting.clear()

    for picture in pictures_of(model, images):
        paths.append(picture.path)
        pixels = picture.pixels.flip(2) if mirror else picture.pixels
        waiting.append(pixels)
        if len(sample) < SAMPLED:
            sample.append(pixels)
        if len(waiting) == size:
            flush()
    if not paths:
        raise InputError(f"{name} contains no image that could be read")
    if waiting:
        flush()
    return _Set(paths=paths, units=torch.cat(units), thumbs=torch.cat(thumbs), sample=torch.stack(sample))


def _threshold(model: OpenModel, sample: Tensor) -> float:
    """The spread of the encoder's features under small changes."""
    originals = unit_features(model.features(sample))
    changes = zip(*(small_changes(pixels) for pixels in sample), strict=True)
    changed = torch.stack([unit_features(model.features(torch.stack(list(images)))) for images in changes])
    return small_change_threshold(originals, changed)


def small_changes(pixels: Tensor) -> list[Tensor]:
    """An image uint8 (3, S, S) at half the size, as a JPEG of low quality, cropped to 95 %, darker and brighter.

    >>> [changed.shape[1] for changed in small_changes(torch.zeros(3, 40, 40, dtype=torch.uint8))]
    [40, 40, 40, 40, 40, 40]
    """
    image = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
    side = image.width
    cropped, half = max(1, round(0.95 * side)), max(1, side // 2)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=40)
    changed = [
        image.resize((half, half), Image.Resampling.LANCZOS),
        Image.open(file).convert("RGB"),
        image.crop((0, 0, cropped, cropped)),
        image.crop((side - cropped, side - cropped, side, side)),
        image.point(lambda value: round(0.8 * value)),
        image.point(lambda value: min(255, round(1.2 * value))),
    ]
    sized = [one.resize((side, side), Image.Resampling.LANCZOS) for one in changed]
    return [torch.from_numpy(to_array(one)) for one in sized]


def write_duplicates(path: str | Path, found: Duplicates, *, html: str | Path | None = None) -> Path:
    """Write groups as a table with the columns group and path, and a page; the path of the page."""
    path = Path(path).expanduser()
    rows = ((number, one) for number, group in enumerate(found.groups, start=1) for one in group.paths)
    write_table(path, ("group", "path"), rows)
    best: dict[str, float] = {}
    for first, second, correlation in (pair for group in found.groups for pair in group.pairs):
        for one in (first, second):
            best[one] = max(best.get(one, 0.0), correlation)
    figures = [[Shown(path=one, heading=f"{best[one]:.3f}") for one in group.paths] for group in found.groups]
    title = f"{len(found.groups):,} groups of near-identical images, of {found.images:,} images"
    text = "The number is the correlation with the most similar image of the group: 1 for equal pixels."
    return write_pictures(path.with_suffix(".html") if html is None else html, title, text, figures)
