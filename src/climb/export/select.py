"""Select the images most worth labelling: typical, different from each other, and from those with a label."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from climb.arguments import checked
from climb.errors import InputError
from climb.export.duplicates import SAMPLED, small_changes
from climb.export.embed import Picture, embed
from climb.export.model_loader import OpenModel, stored_images
from climb.export.picture_page import Shown, write_pictures
from climb.export.score import pictures_of, write_table
from climb.export.search import own_file
from climb.files import write_atomic
from climb.novelty import select_diverse, unit_features

NEAR = 0.5
"""Quantile of distances under small changes below which two images are near-duplicates: few others are so near."""
FILES = ("selected.csv", "selected.html", "images")


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectedImage:
    """One image to label."""

    path: str
    """Its path, or its number in the stream."""
    stands_for: int
    """Number of images that are similar to it."""
    pixels: Tensor | None = None
    """uint8 (3, H, W), for an image in a memory."""


@checked()
def select(
    model: OpenModel,
    images: str | Path | Iterable[Path | Picture] | None = None,
    *,
    n: int = 50,
    labelled: str | Path | Iterable[Path | Picture] | None = None,
    seed: int = 0,
) -> list[SelectedImage]:
    """The ``n`` images most worth labelling, the most useful first.

    Args:
        model: its encoder computes the features.
        images: a finite source, as of `images_of`, or a list of pictures; None for the images in memory.
        n: number of images.
        labelled: images that have a label already.
        seed: of the clusters.

    Raises:
        InputError: there are fewer than ``n`` different images.
    """
    if n < 1:
        raise InputError(f"n is {n}; it must be at least 1")
    pixels: Tensor | None = None
    if images is None:
        stored = stored_images(model)
        paths, features, pixels = stored.names, torch.from_numpy(stored.features), stored.images
        sample = pixels[:SAMPLED]
        apart = 0.0 if sample.shape[-1] != model.saved.image_size else _apart(model, sample)
    else:
        kept = list[Tensor]()
        paths, features = _features(model, images, "IMAGES", kept)
        apart = _apart(model, torch.stack(kept))
    known = None if labelled is None else _features(model, labelled, "--labelled", [])[1]
    chosen = select_diverse(features, n, labelled=known, apart=apart, seed=seed)
    return [
        SelectedImage(path=paths[row], stands_for=size, pixels=None if pixels is None else pixels[row])
        for row, size in zip(chosen.rows, chosen.cluster_sizes, strict=True)
    ]


def _features(
    model: OpenModel, images: str | Path | Iterable[Path | Picture], name: str, sample: list[Tensor]
) -> tuple[list[str], Tensor]:
    """Paths and features of a source; ``sample`` receives some of the images."""

    def sampled() -> Iterable[Picture]:
        for picture in pictures_of(model, images):
            if len(sample) < SAMPLED:
                sample.append(picture.pixels)
            yield picture

    batches = list(embed(model, sampled()))
    if not batches:
        raise InputError(f"{name} contains no image that could be read")
    features = np.concatenate([batch.features for batch in batches])
    return [path for batch in batches for path in batch.paths], torch.from_numpy(features)


def _apart(model: OpenModel, sample: Tensor) -> float:
    """The distance that small changes of an image reach half of the time."""
    originals = unit_features(model.features(sample))
    changes = zip(*(small_changes(pixels) for pixels in sample), strict=True)
    moved = [1 - (unit_features(model.features(torch.stack(list(one)))) * originals).sum(dim=1) for one in changes]
    return float(torch.cat(moved).clamp(min=0).quantile(NEAR))


def check_folder(folder: str | Path) -> Path:
    """Reject a file, and a folder with anything but an earlier selection."""
    folder = Path(folder).expanduser()
    if folder.exists() and (not folder.is_dir() or set(os.listdir(folder)) - set(FILES)):
        raise InputError(f"{folder} is a file, or a folder with other files; give a new folder")
    return folder


def write_selection(folder: str | Path, selected: list[SelectedImage]) -> Path:
    """Write a list, a contact sheet and a folder of links (PNG files for images of a memory) into a folder."""
    folder = check_folder(folder)
    links = folder / "images"
    links.mkdir(parents=True, exist_ok=True)
    for old in links.iterdir():  # of an earlier selection
        old.unlink()
    for rank, one in enumerate(selected, start=1):
        file = own_file(one.path) if one.pixels is None else None
        if one.pixels is not None:
            picture = Image.fromarray(one.pixels.permute(1, 2, 0).contiguous().numpy())
            name = f"{rank:04d}-{one.path.replace(' ', '-')}.png"
            write_atomic(links / name, partial(picture.save, format="PNG"))
        elif file is not None:
            suffix = file.suffix if len(os.fsencode(file.name)) > 200 else f"-{file.name}"
            (links / f"{rank:04d}{suffix}").symlink_to(file.resolve())
    rows = ((rank, one.path, one.stands_for) for rank, one in enumerate(selected, start=1))
    write_table(folder / "selected.csv", ("rank", "path", "stands_for"), rows)
    text = "The most useful first. The number counts the images that are similar to it."
    figures = [Shown(path=one.path, heading=f"{one.stands_for:,}", pixels=one.pixels) for one in selected]
    write_pictures(folder / "selected.html", f"{len(selected)} images to label", text, [figures])
    return folder
