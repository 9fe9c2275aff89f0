"""A folder of images: in class folders, with or without a test part, or flat."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from itertools import compress
from pathlib import Path

import numpy as np

from climb.datasets.dataset import Dataset, register
from climb.datasets.decode_cache import Listing, assemble, class_folders, fingerprint_of, list_classes
from climb.errors import InputError
from climb.images.convert import center_square
from climb.images.find import EXTENSIONS, has_images, image_files, own_image_files
from climb.seeds import frozen_generator

TEST_SHARE = 0.2
"""Share of each class that is held out as the test part if the folder has none."""

_log = logging.getLogger("climb.datasets")


def folder_fingerprint(*, root: Path | str | None = None) -> str | None:
    """A fingerprint of names and sizes of the images below ``root``, in either part; None if there is no folder."""
    if root is None or not Path(root).expanduser().is_dir():
        return None
    base = _checked_root(root)
    classes, train, test = _list_folder(base)
    start = len(os.path.join(base, ""))  # slice text: building a path for each of a million files takes a minute
    files = [f"{str(file)[start:].replace(os.sep, '/')}\0{os.stat(file).st_size}" for file, _ in train + (test or [])]
    # An older version squashed the images, so the fingerprint names the way of squaring.
    return f"{fingerprint_of(classes, sorted(files))}, their middle squares"


@register("folder", image_size=64, fingerprint=folder_fingerprint)
def folder(
    *,
    root: Path | str | None = None,
    image_size: int = 64,
    pixel_range: Sequence[float] | None = None,
    seed: int = 0,
) -> Dataset:
    """Your images: ROOT/train|test/<class>/, ROOT/<class>/, or flat in ROOT.

    They become center squares, as in `climb learn` and `climb embed`. `split_folder` describes the layouts.
    """
    classes, *parts = split_folder(root, seed=seed)
    return assemble("folder", classes, parts, image_size=image_size, square=center_square, pixel_range=pixel_range)


def split_folder(root: Path | str | None, *, seed: int) -> tuple[list[str], Listing, Listing]:
    """Classes, training part and test part of a folder of images. Three layouts are supported:

    - ``root/train/<class>/*`` with ``root/test/<class>/*`` or ``root/val/<class>/*``;
    - ``root/<class>/*``, or ``root/train/<class>/*`` alone: 20 % of each class, drawn with ``seed``, become the
      test part;
    - ``root/*``: one class named "images", and no test part.

    ``pixel_range`` is what becomes black and white in images of more than 8 bits; None for the range of each image.
    """
    base = _checked_root(root)
    classes, train, test = _list_folder(base)
    if test is None:
        train, test = _hold_out(base, train, classes, seed)
    return classes, train, test


def check_root(name: str, root: Path | str | None) -> None:
    """Raise an InputError if dataset ``name`` is "folder" and has no ``root``."""
    if name == "folder" and root is None:
        raise InputError("dataset 'folder' needs the folder of the images: --data FOLDER (in Python: root=FOLDER)")


def _checked_root(root: Path | str | None) -> Path:
    check_root("folder", root)
    base = Path(root or ".").expanduser()
    if not base.is_dir():
        raise InputError(f"{base} {'is a file' if base.exists() else 'does not exist'}; give a folder of images")
    if not has_images(base):
        raise InputError(f"{base} holds no image; allowed extensions: {', '.join(sorted(EXTENSIONS))}")
    return base


def _list_folder(base: Path) -> tuple[list[str], Listing, Listing | None]:
    """Classes, training part and test part; None if the test part must be held out."""
    train, tests = base / "train", [base / name for name in ("test", "val") if (base / name).is_dir()]
    if not (train.is_dir() and class_folders(train)):
        train, tests = base, []
        if files := own_image_files(base):
            if nested := len(image_files(base)) - len(files):
                mixed = f"{base} holds {len(files)} images, and folders with {nested} more: it is neither flat nor by"
                raise InputError(f"{mixed} class; move the images into class folders, or give a folder of images only")
            return ["images"], [(file, 0) for file in files], []
    classes = class_folders(train)
    if set(classes) <= {"train", "test", "val"}:
        lacking = f"{train} holds {', '.join(classes)} without class folders inside; expected train/<class>/"
        raise InputError(f"{lacking}. To use images without classes, give the folder with them: {train / classes[0]}")
    if tests and (extra := sorted(set(class_folders(tests[0])) - set(classes))):
        raise InputError(f"{tests[0]} has classes that {train} lacks: {', '.join(extra)}")
    if len(tests) > 1:
        _log.info("%s has both test and val; the test part is test, val is not used", base)
    return classes, list_classes(train, classes), list_classes(tests[0], classes) if tests else None


def _hold_out(base: Path, listing: Listing, classes: list[str], seed: int) -> tuple[Listing, Listing]:
    """Split the images below ``base`` into a training and a test part, both in the order of the listing.

    The test part has 20 % of each class, at least one image.
    """
    generator = frozen_generator(seed, "folder/test part")
    labels = np.array([label for _, label in listing])
    in_test = np.zeros(len(labels), dtype=np.bool_)
    for label, name in enumerate(classes):
        members = np.flatnonzero(labels == label)
        if len(members) < 2:
            raise InputError(f"class '{name}' has 1 image; at least 2 are needed to hold one out for testing")
        in_test[generator.permutation(members)[: max(1, round(TEST_SHARE * len(members)))]] = True
    held_out = f"{in_test.sum()} of its {len(labels)} images ({100 * TEST_SHARE:.0f} % of each class, seed {seed})"
    _log.info("%s has no test part: %s are held out as one", base, held_out)
    return list(compress(listing, ~in_test)), list(compress(listing, in_test))
