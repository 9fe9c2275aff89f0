"""A folder of labelled images: which file is of which class, and which are for testing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from climb.datasets.folder import hold_out, list_one_part, list_parts
from climb.datasets.listing import Listing, class_folders
from climb.errors import InputError


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
    in_parts = (base / "train").is_dir() and bool(class_folders(base / "train"))
    trained = base / "train" if in_parts else base
    _check_classes(trained)
    classes, train, test = list_parts(base) if in_parts else list_one_part(base)
    if test is None:
        train, test = hold_out(trained, train, classes, seed=seed, draw="probe/test part")
    return LabelledFolder(classes=classes, train=train, test=test)


def _check_classes(folder: Path) -> None:
    classes = class_folders(folder)
    if len(classes) < 2:
        raise InputError(
            f"{folder} has {len(classes)} sub-folder{'s' if len(classes) != 1 else ''}; a probe needs one for each "
            "class, and at least two: FOLDER/<class>/*, or FOLDER/train/<class>/* and FOLDER/test/<class>/*"
        )
