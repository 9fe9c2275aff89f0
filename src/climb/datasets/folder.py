"""A folder of images: in class folders, with or without a test part, in domains of classes, or flat."""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import chain, compress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

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
    # An older version squashed the images, so the fingerprint names the way of squaring.
    return f"{fingerprint_of(classes, sorted(_described(base, train + (test or []))))}, their middle squares"


def _described(base: Path, listing: Listing) -> list[str]:
    """Name and size of each file."""
    start = len(os.path.join(base, ""))  # slice text: building a path for each of a million files takes a minute
    return [f"{str(file)[start:].replace(os.sep, '/')}\0{os.stat(file).st_size}" for file, _ in listing]


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
    return assemble(
        "folder", classes, parts, image_size=image_size, square=center_square, pixel_range=pixel_range, root=_root(root)
    )


def domains_fingerprint(*, root: Path | str | None = None) -> str | None:
    """A fingerprint of names and sizes of the images in ROOT/<domain>/<class>/; None if there is no folder."""
    if root is None or not Path(root).expanduser().is_dir():
        return None
    base = _checked_root(root, "domains")
    classes, _, listing, _ = list_domains(base)
    return f"{fingerprint_of(classes, sorted(_described(base, listing)))}, their middle squares, by domain"


@register("domains", image_size=64, fingerprint=domains_fingerprint)
def domains(
    *,
    root: Path | str | None = None,
    image_size: int = 64,
    pixel_range: Sequence[float] | None = None,
    seed: int = 0,
) -> Dataset:
    """Your images by domain and class: ROOT/<domain>/<class>/, for streams of domains.

    20 % of each class in each domain, drawn with ``seed``, become the test part. A class may lack some domains.
    """
    base = _checked_root(root, "domains")
    classes, names, listing, domain_of = list_domains(base)
    strata = [f"{domain}/{label}" for (_, label), domain in zip(listing, domain_of, strict=True)]
    in_test = hold_out(strata, seed, least=0)
    parts = [list(compress(listing, chosen)) for chosen in (~in_test, in_test)]
    data = assemble(
        "domains", classes, parts, image_size=image_size, square=center_square, pixel_range=pixel_range, root=base
    )
    numbers = {name: number for number, name in enumerate(names)}
    train, test = (
        replace(split, domains=torch.tensor([numbers[name.partition("/")[0]] for name in split.names]))
        for split in (data.train, data.test)
    )
    return replace(data, train=train, test=test, domains=tuple(names))


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


OWN_IMAGES = ("folder", "domains")
"""The datasets of a user's own images."""


def check_root(name: str, root: Path | str | None) -> None:
    """Raise an InputError if dataset ``name`` is one of `OWN_IMAGES` and has no ``root``."""
    if name in OWN_IMAGES and root is None:
        raise InputError(f"dataset '{name}' needs the folder of the images: --data FOLDER (in Python: root=FOLDER)")


def _root(root: Path | str | None) -> Path:
    return Path(root or ".").expanduser()


def _checked_root(root: Path | str | None, dataset: str = "folder") -> Path:
    check_root(dataset, root)
    base = _root(root)
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


def list_domains(base: Path) -> tuple[list[str], list[str], Listing, list[str]]:
    """Classes, domains, the images of ``base/<domain>/<class>/`` of all domains, and the domain of each image."""
    names = class_folders(base)
    of_domain = {name: class_folders(base / name) for name in names}
    if lacking := [name for name, own in of_domain.items() if not own]:
        raise InputError(f"{base / lacking[0]} holds no class folder; dataset 'domains' expects <domain>/<class>/")
    if len(names) < 2:
        raise InputError(f"{base} holds 1 domain, {names[0]}; for images by class alone, give --dataset folder")
    classes = sorted(set(chain.from_iterable(of_domain.values())))
    listing, domain_of = Listing(), list[str]()
    for name, own in of_domain.items():
        images = list_classes(base / name, own)
        listing += [(file, classes.index(own[label])) for file, label in images]
        domain_of += [name] * len(images)
    return classes, names, listing, domain_of


def _hold_out(base: Path, listing: Listing, classes: list[str], seed: int) -> tuple[Listing, Listing]:
    """Split the images below ``base`` into a training and a test part, both in the order of the listing."""
    labels = [label for _, label in listing]
    for name, count in zip(classes, np.bincount(labels, minlength=len(classes)).tolist(), strict=True):
        if count < 2:
            raise InputError(f"class '{name}' has 1 image; at least 2 are needed to hold one out for testing")
    in_test = hold_out(labels, seed)
    held_out = f"{in_test.sum()} of its {len(labels)} images ({100 * TEST_SHARE:.0f} % of each class, seed {seed})"
    _log.info("%s has no test part: %s are held out as one", base, held_out)
    return list(compress(listing, ~in_test)), list(compress(listing, in_test))


def hold_out(strata: Sequence[Hashable], seed: int, *, least: int = 1) -> npt.NDArray[np.bool_]:
    """A mask of test images: 20 % of each stratum, such as a class, or a class in a domain; ``least`` at least.

    Strata are drawn from in the order in which they appear.

    >>> hold_out(["cat"] * 5 + ["dog"] * 5, seed=0).tolist()
    [False, True, False, False, False, True, False, False, False, False]
    """
    generator = frozen_generator(seed, "folder/test part")
    numbers = {stratum: number for number, stratum in enumerate(dict.fromkeys(strata))}
    array = np.array([numbers[stratum] for stratum in strata])
    in_test = np.zeros(len(array), dtype=np.bool_)
    for number in range(len(numbers)):
        members = np.flatnonzero(array == number)
        in_test[generator.permutation(members)[: max(least, round(TEST_SHARE * len(members)))]] = True
    return in_test
