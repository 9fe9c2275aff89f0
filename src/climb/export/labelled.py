"""A folder of labelled images: which file is of which class, and which are for testing."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from climb.datasets.listing import Listing, class_folders, list_classes
from climb.errors import InputError
from climb.seeds import frozen_generator

TEST_SHARE = 0.2
"""Share of each class that is for testing where the folder does not say."""

log = logging.getLogger("climb.export")


@dataclass(frozen=True, kw_only=True)
class LabelledFolder:
    """Files and labels of a training and a test part."""

    classes: list[str]
    """Label i is ``classes[i]``."""
    train: Listing
    test: Listing


def read_labelled(folder: str | Path, *, seed: int) -> LabelledFolder:
    """``folder/train/<class>/*`` with ``folder/test/<class>/*`` (or ``val``), or ``folder/<class>/*``.

    Without a test part 20 % of each class, drawn with ``seed``, are it.
    """
    base = Path(folder).expanduser()
    if not base.is_dir():
        raise InputError(f"{base} {'is a file' if base.exists() else 'does not exist'}; give a folder of images")
    if not (base / "train").is_dir() or not class_folders(base / "train"):
        return _split(base, seed)
    tests = [base / name for name in ("test", "val") if (base / name).is_dir()]
    if not tests:
        return _split(base / "train", seed)
    classes = _classes(base / "train")
    extra = sorted(set(class_folders(tests[0])) - set(classes))
    if extra:
        raise InputError(f"{tests[0]} has classes that {base / 'train'} has not: {', '.join(extra)}")
    return LabelledFolder(
        classes=classes, train=list_classes(base / "train", classes), test=list_classes(tests[0], classes)
    )


def _classes(folder: Path) -> list[str]:
    classes = class_folders(folder)
    if len(classes) < 2:
        raise InputError(
            f"{folder} has {len(classes)} sub-folder{'s' if len(classes) != 1 else ''}; a probe needs one for each "
            "class, and at least two: FOLDER/<class>/*, or FOLDER/train/<class>/* and FOLDER/test/<class>/*"
        )
    return classes


def _split(folder: Path, seed: int) -> LabelledFolder:
    """Both parts in the order of the listing, with at least one image of each class in either."""
    classes = _classes(folder)
    listing = list_classes(folder, classes)
    generator = frozen_generator(seed, "probe/test part")
    held_out: set[int] = set()
    members_of: list[list[int]] = [[] for _ in classes]
    for place, label in enumerate(listing.labels):
        members_of[label].append(place)
    for name, members in zip(classes, members_of, strict=True):
        if len(members) < 2:
            raise InputError(f"class '{name}' has 1 image; at least 2 are needed to hold one out for testing")
        count = max(1, round(TEST_SHARE * len(members)))
        held_out.update(members[place] for place in generator.permutation(len(members))[:count].tolist())
    log.info(
        "%s has no test part: %d of its %d images (%.0f %% of each class, seed %d) are held out as one",
        folder,
        len(held_out),
        len(listing.files),
        100 * TEST_SHARE,
        seed,
    )
    kept = [place for place in range(len(listing.files)) if place not in held_out]
    return LabelledFolder(classes=classes, train=_rows(listing, kept), test=_rows(listing, sorted(held_out)))


def _rows(listing: Listing, places: list[int]) -> Listing:
    return Listing(
        files=tuple(listing.files[place] for place in places), labels=tuple(listing.labels[place] for place in places)
    )
