"""Tiny-ImageNet: 200 classes of 64-pixel images, in its standard layout."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from climb.datasets.assemble import assemble
from climb.datasets.dataset import Dataset
from climb.datasets.download import Archive
from climb.datasets.listing import Listing, list_classes
from climb.datasets.locate import locate
from climb.datasets.squares import squashed
from climb.errors import InputError

ARCHIVE = Archive(
    url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    md5="90528d7ca1a48142e341f4ef8d21d0de",
    folder="tiny-imagenet-200",
)
# CIFAR-10's, as the code released with the paper has them; not measured on these images.
NORMALISATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)


def tiny_imagenet(*, root: Path | str | None = None, image_size: int = 64, download: bool = True) -> Dataset:
    """Tiny-ImageNet; its validation images, the only ones with public labels besides training, are the test part.

    Label i is line i of ``wnids.txt``.
    """
    marks = ("train", "val/images", "val/val_annotations.txt", "wnids.txt", "words.txt")
    folder = locate("tiny-imagenet", root=root, folder=ARCHIVE.folder, marks=marks, archive=ARCHIVE, download=download)
    wnids = (folder / "wnids.txt").read_text(encoding="utf-8").split()
    return assemble(
        name="tiny-imagenet",
        classes=_class_names(folder / "words.txt", wnids),
        train=list_classes(folder / "train", wnids),
        test=_list_validation(folder / "val", wnids),
        image_size=image_size,
        square=squashed,
        normalisation=NORMALISATION,
    )


def _list_validation(folder: Path, wnids: list[str]) -> Listing:
    """The images named in the annotations: file name, wnid, bounding box, separated by tabs."""
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    annotations = folder / "val_annotations.txt"
    files: list[Path] = []
    labels: list[int] = []
    for number, line in enumerate(annotations.read_text(encoding="utf-8").splitlines(), start=1):
        name, _, rest = line.partition("\t")
        wnid = rest.partition("\t")[0]
        file = folder / "images" / name
        if wnid not in label_of:
            raise InputError(f"{annotations}, line {number}: '{wnid}' is not in wnids.txt")
        if not file.is_file():
            raise InputError(f"{annotations}, line {number}: {file} does not exist")
        files.append(file)
        labels.append(label_of[wnid])
    return Listing(files=tuple(files), labels=tuple(labels))


def _class_names(words: Path, wnids: list[str]) -> list[str]:
    """The first word for each wnid; the wnid itself where there is none or two classes share it."""
    lines = (line.partition("\t") for line in words.read_text(encoding="utf-8").splitlines())
    word_of = {wnid: names.split(",")[0].strip() for wnid, _, names in lines}
    uses = Counter(word_of.get(wnid, wnid) for wnid in wnids)
    return [word if uses[word := word_of.get(wnid, wnid)] == 1 else wnid for wnid in wnids]
