"""A subset of the classes of a local ImageNet, listed by the user or drawn at random."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from climb.datasets.dataset import Dataset, register
from climb.datasets.decode_cache import assemble, class_folders, fingerprint_of, list_classes
from climb.datasets.download import Archive, locate
from climb.errors import InputError, first_few
from climb.images.convert import squash

IMAGENET = Archive(dataset="imagenet100", folder="imagenet", contents=("train", "val"))
NORMALISATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def imagenet100_fingerprint(
    *, root: Path | str | None = None, class_list: Path | str | Sequence[str] | None = None
) -> str | None:
    """A fingerprint of the listed classes, or of all classes to draw from; None if there is no ImageNet.

    The contents of a class are fixed by ImageNet, so its files are not part of the fingerprint.
    """
    try:
        train = locate(IMAGENET, root=root) / "train"
    except InputError:
        return None
    return fingerprint_of(class_folders(train) if class_list is None else _read_class_list(class_list, train))


@register("imagenet100", image_size=224, fingerprint=imagenet100_fingerprint)
def imagenet100(
    *,
    root: Path | str | None = None,
    class_list: Path | str | Sequence[str] | None = None,
    classes: int | None = None,
    image_size: int = 224,
    seed: int = 0,
) -> Dataset:
    """100 classes of a local ImageNet, 224 px; ROOT/train/<wnid> and ROOT/val/<wnid>.

    The test part is ``val``.

    Args:
        root: folder of the ImageNet; None looks in $CLIMB_DATA and in the cache.
        class_list: a file with one wnid per line, or the wnids themselves. Label i is the i-th of them.
        classes: number of classes to draw if there is no ``class_list``; None draws 100.
        image_size: side of the images.
        seed: seed of the draw.
    """
    train, val = (locate(IMAGENET, root=root) / name for name in IMAGENET.contents)
    if class_list is None:
        available, count = class_folders(train), 100 if classes is None else classes
        if not 1 <= count <= len(available):
            held = f"{train}, which holds {len(available)} class folders"
            raise InputError(f"classes={count} cannot be drawn from {held}; allowed: 1 to {len(available)}")
        chosen = random.Random(seed).sample(available, count)
    elif classes is not None:
        raise InputError(f"classes={classes} was given together with a class_list; give one of them")
    else:
        chosen = _read_class_list(class_list, train)
    parts = list_classes(train, chosen), list_classes(val, chosen)
    return assemble("imagenet100", chosen, parts, image_size=image_size, square=squash, normalisation=NORMALISATION)


def _read_class_list(class_list: Path | str | Sequence[str], folder: Path) -> list[str]:
    """The listed class names. Each must be one of the folders in ``folder``."""
    if isinstance(class_list, str | Path):
        try:
            text = Path(class_list).expanduser().read_text(encoding="utf-8-sig")  # some editors write a byte order mark
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"the class list {class_list} cannot be read: {reason}") from error
        # Published lists often carry the English name after the wnid.
        class_list = [line.split()[0] for line in text.splitlines() if line.strip()]
    uses = Counter(class_list)
    if not uses:
        raise InputError("the class list is empty; give one wnid per line")
    if repeated := [wnid for wnid, count in uses.items() if count > 1]:
        raise InputError(f"the class list names {first_few(repeated)} more than once")
    if missing := uses.keys() - set(class_folders(folder)):
        many = f"{len(missing)} of {len(uses)} listed classes"
        raise InputError(f"{many} have no folder in {folder}: {first_few(sorted(missing))}")
    return list(uses)
