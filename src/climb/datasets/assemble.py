"""From lists of image files to a checked dataset."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from climb.datasets.check import check_dataset
from climb.datasets.dataset import Dataset, Split
from climb.datasets.decoded import Decoded, decode_files
from climb.datasets.listing import Listing
from climb.datasets.squares import Square
from climb.datasets.statistics import Channels, channel_statistics
from climb.errors import InputError

UNREADABLE_SHARE = 0.01
"""Largest share of files that may be skipped."""

_SHOWN = 5
_SIZES = range(8, 1025)


def assemble(
    *,
    name: str,
    classes: Sequence[str],
    train: Listing,
    test: Listing,
    image_size: int,
    square: Square,
    normalisation: tuple[Channels, Channels] | None = None,
) -> Dataset:
    """Decode (or take from the cache), drop what is unreadable, check.

    ``square`` makes squares of images that are none. ``normalisation`` is (mean, std); without it both are computed
    from the training images.
    """
    if image_size not in _SIZES:
        raise InputError(f"image_size={image_size} is impossible; allowed: {_SIZES[0]} to {_SIZES[-1]}")
    decoded = [decode_files(listing.files, image_size, square) for listing in (train, test)]
    _refuse_too_many_unreadable(name, (train, test), decoded)
    train_split, test_split = map(_split, (train, test), decoded)
    mean, std = normalisation or channel_statistics(train_split.images)
    dataset = Dataset(name=name, train=train_split, test=test_split, classes=tuple(classes), mean=mean, std=std)
    return check_dataset(dataset)


def _split(listing: Listing, decoded: Decoded) -> Split:
    skipped = set(decoded.unreadable)
    kept = [label for position, label in enumerate(listing.labels) if position not in skipped]
    return Split(images=decoded.images, labels=torch.tensor(kept, dtype=torch.int64))


def _refuse_too_many_unreadable(name: str, listings: Sequence[Listing], decoded: Sequence[Decoded]) -> None:
    pairs = zip(listings, decoded, strict=True)
    bad = [listing.files[position] for listing, result in pairs for position in result.unreadable]
    total = sum(len(listing.files) for listing in listings)
    if len(bad) > UNREADABLE_SHARE * total:
        raise InputError(
            f"dataset '{name}': {len(bad)} of {total} images cannot be read (at most "
            f"{UNREADABLE_SHARE:.0%} may be skipped); the first: {', '.join(map(str, bad[:_SHOWN]))}. "
            "Repair or remove them and run again."
        )
