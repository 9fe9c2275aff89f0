"""A subset of a local ImageNet: 100 classes, listed or drawn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from climb.datasets.assemble import assemble
from climb.datasets.dataset import Dataset
from climb.datasets.fingerprint import of_names
from climb.datasets.listing import class_folders, list_classes
from climb.datasets.locate import locate
from climb.datasets.squares import squashed
from climb.errors import InputError

NORMALISATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

_SHOWN = 5


def imagenet100(
    *,
    root: Path | str | None = None,
    class_list: Path | str | Sequence[str] | None = None,
    classes: int | None = None,
    image_size: int = 224,
    seed: int = 0,
) -> Dataset:
    """Some classes of an ImageNet with ``train/<wnid>/`` and ``val/<wnid>/``; the test part is ``val``.

    ``class_list`` is a file with one wnid per line, or the wnids themselves. Without it ``classes`` of them
    (100 unless given) are drawn with ``seed``. Label i is the i-th of the list, or of the draw.
    """
    folder = locate("imagenet100", root=root, folder="imagenet", marks=("train", "val"))
    found = class_folders(folder / "train")
    if class_list is None:
        chosen = _draw(found, 100 if classes is None else classes, seed, folder / "train")
    elif classes is not None:
        raise InputError(f"classes={classes} was given beside a class_list; give one of them")
    else:
        chosen = _listed(class_list, found, folder / "train")
    return assemble(
        name="imagenet100",
        classes=chosen,
        train=list_classes(folder / "train", chosen),
        test=list_classes(folder / "val", chosen),
        image_size=image_size,
        square=squashed,
        normalisation=NORMALISATION,
    )


def imagenet100_fingerprint(
    *, root: Path | str | None = None, class_list: Path | str | Sequence[str] | None = None
) -> str | None:
    """The classes listed or, where some are drawn, those they are drawn from; None where there is no ImageNet.

    What each class holds is ImageNet's to say, not the folder's.
    """
    try:
        folder = locate("imagenet100", root=root, folder="imagenet", marks=("train", "val"))
    except InputError:
        return None
    found = class_folders(folder / "train")
    return of_names(found if class_list is None else _listed(class_list, found, folder / "train"))


def _draw(found: list[str], count: int, seed: int, folder: Path) -> list[str]:
    if not 1 <= count <= len(found):
        raise InputError(
            f"classes={count} cannot be drawn from {folder}, which holds {len(found)} class folders; "
            f"allowed: 1 to {len(found)}"
        )
    return random.Random(seed).sample(found, count)


def _listed(class_list: Path | str | Sequence[str], found: list[str], folder: Path) -> list[str]:
    if isinstance(class_list, str | Path):
        file = Path(class_list).expanduser()
        try:
            lines = file.read_text(encoding="utf-8-sig").splitlines()  # some editors put a mark before the first
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"the class list {file} cannot be read: {reason}") from error
        # Published lists often carry the English name after the wnid.
        wnids = [line.split()[0] for line in lines if line.strip()]
    else:
        wnids = list(class_list)
    if not wnids:
        raise InputError("the class list is empty; give one wnid per line")
    twice = [wnid for wnid, uses in Counter(wnids).items() if uses > 1]
    if twice:
        raise InputError(f"the class list names {', '.join(twice[:_SHOWN])} more than once")
    known = set(found)
    missing = [wnid for wnid in wnids if wnid not in known]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(wnids)} listed classes have no folder in {folder}: {', '.join(missing[:_SHOWN])}"
        )
    return wnids
