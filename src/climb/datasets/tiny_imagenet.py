"""Tiny-ImageNet: 200 classes of 64-pixel images, in its standard layout."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from climb.datasets.dataset import RELEASED, Dataset, register
from climb.datasets.decode_cache import Listing, assemble, list_classes
from climb.datasets.download import Archive, locate
from climb.errors import InputError
from climb.images.convert import squash

ARCHIVE = Archive(
    dataset="tiny-imagenet",
    contents=("train", "val/images", "val/val_annotations.txt", "wnids.txt", "words.txt"),
    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    md5="90528d7ca1a48142e341f4ef8d21d0de",
    folder="tiny-imagenet-200",
)
MEASURED = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)
"""Means and deviations over all pixels of the training images, as widely published."""


@register("tiny-imagenet", image_size=64)
def tiny_imagenet(
    *, root: Path | str | None = None, image_size: int = 64, download: bool = True, normalisation: str = "measured"
) -> Dataset:
    """Tiny-ImageNet, 64 px; ROOT/tiny-imagenet-200, $CLIMB_DATA, the cache, or downloaded (237 MB)

    The test part is its validation part, as the labels of its own test part are not public. Label i is line i of
    ``wnids.txt``.
    """
    folder = locate(ARCHIVE, root=root, download=download)
    wnids = (folder / "wnids.txt").read_text(encoding="utf-8").split()
    classes = _class_names(folder / "words.txt", wnids)
    parts = list_classes(folder / "train", wnids), _list_validation(folder / "val", wnids)
    statistics = RELEASED if normalisation == "released" else MEASURED
    return assemble("tiny-imagenet", classes, parts, image_size=image_size, square=squash, normalisation=statistics)


def _list_validation(folder: Path, wnids: list[str]) -> Listing:
    """The images that the annotations list: file name, wnid and bounding box, separated by tabs."""
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    annotations = folder / "val_annotations.txt"
    listing: Listing = []
    for number, line in enumerate(annotations.read_text(encoding="utf-8").splitlines(), start=1):
        name, wnid = [*line.split("\t"), ""][:2]
        file = folder / "images" / name
        if wnid not in label_of:
            raise InputError(f"{annotations}, line {number}: '{wnid}' is not in wnids.txt")
        if not file.is_file():
            raise InputError(f"{annotations}, line {number}: {file} does not exist")
        listing.append((file, label_of[wnid]))
    return listing


def _class_names(words: Path, wnids: list[str]) -> list[str]:
    """The first word of each class; its wnid if it has no word or shares it with another class."""
    lines = (line.partition("\t") for line in words.read_text(encoding="utf-8").splitlines())
    word_of = {wnid: names.split(",")[0].strip() for wnid, _, names in lines}
    uses = Counter(word_of.get(wnid, wnid) for wnid in wnids)
    return [word if uses[word := word_of.get(wnid, wnid)] == 1 else wnid for wnid in wnids]
