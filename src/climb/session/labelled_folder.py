"""A folder of labelled images for probes: classes, perhaps domains, and a training and a test part."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from climb.datasets.decode_cache import class_folders
from climb.datasets.folder import hold_out, list_domains, split_folder
from climb.errors import InputError
from climb.images.find import own_image_files

log = logging.getLogger("climb.session")

LAYOUTS = "FOLDER/<class>/*, FOLDER/<domain>/<class>/*, or FOLDER/train/... and FOLDER/test/... with those"
PARTS = ("train", "test", "val")


class LabelledFile(NamedTuple):
    """An image file with its class and its domain."""

    path: Path
    label: int
    domain: int
    """0 in a folder without domains."""


@dataclass(frozen=True, kw_only=True)
class LabelledFolder:
    """The files of a labelled folder."""

    classes: list[str]
    domains: list[str]
    """Empty in a folder without domains."""
    train: list[LabelledFile]
    test: list[LabelledFile]


def labelled_folder(images: str | Path, *, seed: int, domains: bool | None = None) -> LabelledFolder:
    """List a folder with one sub-folder per class, or with one per domain that has one per class.

    Args:
        images: the folder. Its ``train`` and ``test`` (or ``val``) folders are the two parts, if it has them. Otherwise
            20 % of each class, in each domain, are the test part.
        seed: draws the test part.
        domains: whether the first level are domains. None: if all its folders hold the same classes and no image.

    Raises:
        InputError: the folder has no images, or fewer than two classes.
    """
    base = Path(images).expanduser()
    train, test = _part_folders(base)
    if domains is None and base.is_dir():
        domains = has_domains(train)
        if domains:
            text = (
                "%s is read as DOMAIN/CLASS/IMAGE: its folders %s hold the same classes (--no-domains reads CLASS/...)"
            )
            log.info(text, train, ", ".join(class_folders(train)[:5]))
    listed = _with_domains(train, test, seed=seed) if domains else _without_domains(base, seed=seed)
    if len(listed.classes) < 2:
        raise InputError(f"{images} has 1 class; a probe needs at least two, each in a folder of its own: {LAYOUTS}")
    return listed


def has_domains(folder: Path) -> bool:
    """Whether all folders in ``folder`` hold the same two or more classes, and no image of their own.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for place in ("photo/cat", "photo/dog", "sketch/cat", "sketch/dog"):
    ...     (root / place).mkdir(parents=True)
    >>> has_domains(root), has_domains(root / "photo")
    (True, False)
    """
    names = class_folders(folder)
    inner = [class_folders(folder / name) for name in names]
    if len(names) < 2 or set(names) <= set(PARTS) or len(inner[0]) < 2 or any(each != inner[0] for each in inner):
        return False
    return not any(own_image_files(folder / name) for name in names)


def _part_folders(base: Path) -> tuple[Path, Path | None]:
    """The folders of the training and of the test part; the folder itself and None without parts."""
    train = base / "train"
    if not (train.is_dir() and class_folders(train)):
        return base, None
    tests = [base / name for name in PARTS[1:] if (base / name).is_dir()]
    return train, tests[0] if tests else None


def _without_domains(base: Path, *, seed: int) -> LabelledFolder:
    classes, *listings = split_folder(base, seed=seed)
    train, test = ([LabelledFile(path, label, 0) for path, label in listing] for listing in listings)
    return LabelledFolder(classes=classes, domains=[], train=train, test=test)


def _with_domains(train: Path, test: Path | None, *, seed: int) -> LabelledFolder:
    if not train.is_dir():
        raise InputError(f"{train} {'is a file' if train.exists() else 'does not exist'}; give a folder of images")
    classes, domains, files = _files(train)
    if test is None:
        in_test = hold_out([(file.domain, file.label) for file in files], seed, least=0)
        log.info("%s has no test part: 20 %% of each class and domain are held out (seed %d)", train, seed)
        held_out = [file for file, chosen in zip(files, in_test, strict=True) if chosen]
        files = [file for file, chosen in zip(files, in_test, strict=True) if not chosen]
        return LabelledFolder(classes=classes, domains=domains, train=files, test=held_out)
    others, other_domains, held_out = _files(test)
    for name, own, known in (("classes", others, classes), ("domains", other_domains, domains)):
        if own != known:
            differing = ", ".join(sorted(set(own) ^ set(known)))
            raise InputError(f"{test} and {train} have different {name}: {differing}; both need the same")
    return LabelledFolder(classes=classes, domains=domains, train=files, test=held_out)


def _files(folder: Path) -> tuple[list[str], list[str], list[LabelledFile]]:
    """Classes, domains and files of ``folder/<domain>/<class>/``."""
    classes, domains, listing, domain_of = list_domains(folder)
    numbers = {name: number for number, name in enumerate(domains)}
    files = (LabelledFile(*entry, numbers[name]) for entry, name in zip(listing, domain_of, strict=True))
    return classes, domains, list(files)
