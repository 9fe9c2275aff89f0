"""A folder of images: by class, with or without a test part, or flat."""

from __future__ import annotations

import logging
from pathlib import Path

from climb.datasets.assemble import assemble
from climb.datasets.dataset import Dataset
from climb.datasets.decode import EXTENSIONS
from climb.datasets.fingerprint import of_files
from climb.datasets.listing import Listing, class_folders, has_images, image_files, list_classes, own_image_files
from climb.datasets.squares import middle
from climb.errors import InputError
from climb.seeds import frozen_generator

TEST_SHARE = 0.2
"""Share of each class that becomes the test part where the folder has none."""
FLAT_CLASS = "images"
"""The one class of a folder without classes."""

_PARTS = ("train", "test", "val")
_log = logging.getLogger("climb.datasets")


def folder(*, root: Path | str | None = None, image_size: int = 64, seed: int = 0) -> Dataset:
    """The images below ``root``, the middle square of each, as `climb learn` and `climb embed` take it.

    Three layouts are understood:

    - ``root/train/<class>/*`` with ``root/test/<class>/*`` or ``root/val/<class>/*``;
    - ``root/<class>/*``, or ``root/train/<class>/*`` alone: 20 % of each class, drawn with ``seed``, become the
      test part;
    - ``root/*``: one class named "images", and no test part.
    """
    base = _existing(root)
    classes, train, test = _listed(base)
    if test is None:
        train, test = hold_out(base, train, classes, seed=seed, draw="folder/test part")
    return assemble(name="folder", classes=classes, train=train, test=test, image_size=image_size, square=middle)


def folder_fingerprint(*, root: Path | str | None = None) -> str | None:
    """What the images below ``root`` are known by, whichever of them are held out; None where there is no folder.

    Which part of them is seen belongs to it: an older version squashed them.
    """
    if root is None or not Path(root).expanduser().is_dir():
        return None
    base = _existing(root)
    classes, train, test = _listed(base)
    files = train.files if test is None else train.files + test.files
    return f"{of_files(classes, files, base)}, their middle squares"


def _listed(base: Path) -> tuple[list[str], Listing, Listing | None]:
    """Classes, training part and test part; None where one has to be held out."""
    if (base / "train").is_dir() and class_folders(base / "train"):
        return list_parts(base)
    return _list_flat(base) if own_image_files(base) else list_one_part(base)


def check_root(name: str, root: Path | str | None) -> None:
    """Refuse people's own images without a folder, before anything is started that needs them."""
    if name == "folder" and root is None:
        raise InputError("dataset 'folder' needs the folder of the images: --data FOLDER (in Python: root=FOLDER)")


def _existing(root: Path | str | None) -> Path:
    check_root("folder", root)
    assert root is not None
    base = Path(root).expanduser()
    if not base.is_dir():
        reason = "is a file" if base.exists() else "does not exist"
        raise InputError(
            f"looked for a folder of images at {base}, which {reason}; give --data FOLDER (in Python: root=FOLDER)"
        )
    if not has_images(base):
        raise InputError(f"{base} holds no image; allowed extensions: {', '.join(sorted(EXTENSIONS))}")
    return base


def list_parts(base: Path) -> tuple[list[str], Listing, Listing | None]:
    """Classes and parts of a folder that has ``train/<class>``; no test part where it has neither test nor val."""
    tests = [base / name for name in ("test", "val") if (base / name).is_dir()]
    if not tests:
        return list_one_part(base / "train")
    classes = class_folders(base / "train")
    extra = sorted(set(class_folders(tests[0])) - set(classes))
    if extra:
        raise InputError(f"{tests[0]} has classes that {base / 'train'} has not: {', '.join(extra)}")
    if len(tests) > 1:
        _log.info("%s has both test and val; the test part is test, val is not used", base)
    return classes, list_classes(base / "train", classes), list_classes(tests[0], classes)


def _list_flat(base: Path) -> tuple[list[str], Listing, Listing]:
    files = own_image_files(base)
    inside = len(image_files(base)) - len(files)
    if inside:
        raise InputError(
            f"{base} holds {len(files)} images beside folders with {inside} more: it is neither flat nor by class; "
            "move the images into class folders, or give a folder that holds images only"
        )
    return [FLAT_CLASS], Listing(files=tuple(files), labels=(0,) * len(files)), Listing(files=(), labels=())


def list_one_part(base: Path) -> tuple[list[str], Listing, None]:
    """Classes and images of ``base/<class>``. Parts of a dataset are no classes: such a folder is refused."""
    classes = class_folders(base)
    if set(classes) <= set(_PARTS):
        raise InputError(
            f"{base} holds {', '.join(classes)} without class folders inside; expected train/<class>/. "
            f"To use images without classes, give the folder that holds them: {base / classes[0]}"
        )
    return classes, list_classes(base, classes), None


def hold_out(base: Path, listing: Listing, classes: list[str], *, seed: int, draw: str) -> tuple[Listing, Listing]:
    """A training and a test part of the images found below ``base``, both in the order of the listing.

    Of each class 20 %, and at least one image, are the test part; the draw called ``draw`` decides which.
    """
    generator = frozen_generator(seed, draw)
    test: set[int] = set()
    members_of: list[list[int]] = [[] for _ in classes]
    for position, label in enumerate(listing.labels):
        members_of[label].append(position)
    for name, members in zip(classes, members_of, strict=True):
        if len(members) < 2:
            raise InputError(f"class '{name}' has 1 image; at least 2 are needed to hold one out for testing")
        count = max(1, round(TEST_SHARE * len(members)))
        test.update(members[i] for i in generator.permutation(len(members))[:count].tolist())
    _log.info(
        "%s has no test part: %d of its %d images (%.0f %% of each class, seed %d) are held out as one",
        base,
        len(test),
        len(listing.files),
        100 * TEST_SHARE,
        seed,
    )
    train = [position for position in range(len(listing.files)) if position not in test]
    return _subset(listing, train), _subset(listing, sorted(test))


def _subset(listing: Listing, positions: list[int]) -> Listing:
    return Listing(files=tuple(listing.files[i] for i in positions), labels=tuple(listing.labels[i] for i in positions))
