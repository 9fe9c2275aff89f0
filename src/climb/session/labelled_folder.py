"""A folder of labelled images for probes: classes, perhaps domains, and a training and a test part."""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from climb.datasets.decode_cache import class_folders
from climb.datasets.folder import TEST_SHARE, split_folder
from climb.errors import InputError
from climb.images.find import image_files, own_image_files
from climb.seeds import frozen_generator

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
    domains = class_folders(train)
    classes = sorted({name for domain in domains for name in class_folders(train / domain)})
    cells = _cells(train, domains, classes)
    missing = next((name for label, name in enumerate(classes) if not any(cells[d, label] for d, _ in cells)), None)
    if not classes or missing is not None:
        fault = f"class '{missing}' has no image" if classes else "no class folders"
        raise InputError(f"{train} holds {fault} in its domains; expected <domain>/<class>/* there")
    if test is not None:
        if extra := [name for name in class_folders(test) if name not in domains]:
            raise InputError(f"{test} has domains that {train} lacks: {', '.join(extra)}")
        return LabelledFolder(
            classes=classes, domains=domains, train=_files(cells), test=_files(_cells(test, domains, classes))
        )
    kept, held_out = _hold_out(cells, seed)
    log.info("%s has no test part: %.0f %% of each class and domain are held out (seed %d)", train, 20, seed)
    return LabelledFolder(classes=classes, domains=domains, train=_files(kept), test=_files(held_out))


Cells = dict[tuple[int, int], list[Path]]
"""Files by domain and class."""


def _cells(folder: Path, domains: list[str], classes: list[str]) -> Cells:
    return {
        (d, label): image_files(folder / domain / name) if (folder / domain / name).is_dir() else []
        for d, domain in enumerate(domains)
        for label, name in enumerate(classes)
    }


def _hold_out(cells: Cells, seed: int) -> tuple[Cells, Cells]:
    """Split each cell; one with a single image stays in the training part."""
    generator = frozen_generator(seed, "folder/test part")
    kept, held_out = defaultdict[tuple[int, int], list[Path]](list), defaultdict[tuple[int, int], list[Path]](list)
    for cell, files in cells.items():
        count = max(1, round(TEST_SHARE * len(files))) if len(files) > 1 else 0
        drawn = set(generator.permutation(len(files))[:count].tolist())
        for number, file in enumerate(files):
            (held_out if number in drawn else kept)[cell].append(file)
    return kept, held_out


def _files(cells: Cells) -> list[LabelledFile]:
    """The files in the order of domains, then classes."""
    return [LabelledFile(path, label, domain) for (domain, label), paths in cells.items() for path in paths]
