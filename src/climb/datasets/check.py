"""What every dataset must satisfy before anything is trained on it."""

from __future__ import annotations

import torch

from climb.datasets.dataset import Dataset, Split
from climb.errors import InputError

_SHOWN = 5


def check_dataset(dataset: Dataset) -> Dataset:
    """The dataset itself, or an InputError: shapes, label range, every class present.

    A test part without any image is allowed (a flat folder has none); one that lacks a class is not.
    """
    _check_split(dataset, dataset.train, "train")
    _check_split(dataset, dataset.test, "test")
    if len(dataset.train) == 0:
        raise InputError(f"dataset '{dataset.name}' has no training images")
    _check_every_class(dataset, dataset.train, "training")
    if len(dataset.test) > 0:
        _check_every_class(dataset, dataset.test, "test")
    if dataset.train.images.shape[1:] != dataset.test.images.shape[1:]:
        raise InputError(
            f"dataset '{dataset.name}': training images are {tuple(dataset.train.images.shape[1:])} "
            f"but test images are {tuple(dataset.test.images.shape[1:])}; both must be the same"
        )
    return dataset


def _check_split(dataset: Dataset, split: Split, part: str) -> None:
    images, labels = split.images, split.labels
    where = f"dataset '{dataset.name}', {part} part"
    if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != 3:
        raise InputError(f"{where}: images are {images.dtype} {tuple(images.shape)}; expected torch.uint8 (n, 3, H, W)")
    if labels.dtype != torch.int64 or labels.shape != (len(split),):
        raise InputError(
            f"{where}: labels are {labels.dtype} {tuple(labels.shape)}; expected torch.int64 ({len(split)},)"
        )
    if len(split) and not 0 <= int(labels.min()) <= int(labels.max()) < len(dataset.classes):
        raise InputError(
            f"{where}: labels run from {int(labels.min())} to {int(labels.max())}; "
            f"expected 0 to {len(dataset.classes) - 1}"
        )


def _check_every_class(dataset: Dataset, split: Split, part: str) -> None:
    counts = torch.bincount(split.labels, minlength=len(dataset.classes))
    missing = [dataset.classes[i] for i in torch.nonzero(counts == 0).flatten().tolist()]
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise InputError(
            f"dataset '{dataset.name}': no {part} image of class {', '.join(missing[:_SHOWN])}{more}; "
            f"every class needs at least one"
        )
