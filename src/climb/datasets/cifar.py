"""CIFAR-10 and CIFAR-100 in their standard python layout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from climb.datasets.check import check_dataset
from climb.datasets.dataset import Dataset, Split
from climb.datasets.download import Archive
from climb.datasets.locate import locate
from climb.datasets.statistics import Channels
from climb.datasets.unpickle import load_arrays
from climb.errors import InputError

SIDE = 32


@dataclass(frozen=True, kw_only=True)
class CifarLayout:
    """What a CIFAR folder must hold."""

    name: str
    archive: Archive
    train_files: tuple[str, ...]
    test_files: tuple[str, ...]
    meta_file: str
    labels_key: str
    names_key: str
    train_count: int
    test_count: int
    class_count: int
    mean: Channels
    std: Channels


CIFAR100 = CifarLayout(
    name="cifar100",
    archive=Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        folder="cifar-100-python",
    ),
    train_files=("train",),
    test_files=("test",),
    meta_file="meta",
    labels_key="fine_labels",
    names_key="fine_label_names",
    train_count=50_000,
    test_count=10_000,
    class_count=100,
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)

CIFAR10 = CifarLayout(
    name="cifar10",
    archive=Archive(
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        folder="cifar-10-batches-py",
    ),
    train_files=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test_files=("test_batch",),
    meta_file="batches.meta",
    labels_key="labels",
    names_key="label_names",
    train_count=50_000,
    test_count=10_000,
    class_count=10,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),  # widely used, though it is the mean over images of each one's own deviation
)


def cifar100(*, root: Path | str | None = None, download: bool = True) -> Dataset:
    """CIFAR-100 with its 100 fine labels."""
    return read_cifar(CIFAR100, root=root, download=download)


def cifar10(*, root: Path | str | None = None, download: bool = True) -> Dataset:
    """CIFAR-10."""
    return read_cifar(CIFAR10, root=root, download=download)


def read_cifar(layout: CifarLayout, *, root: Path | str | None, download: bool) -> Dataset:
    """The dataset in a folder of this layout, checked by counts, shapes and label range."""
    folder = locate(
        layout.name,
        root=root,
        folder=layout.archive.folder,
        marks=(*layout.train_files, *layout.test_files, layout.meta_file),
        archive=layout.archive,
        download=download,
    )
    dataset = Dataset(
        name=layout.name,
        train=_read_split(layout, folder, layout.train_files, layout.train_count),
        test=_read_split(layout, folder, layout.test_files, layout.test_count),
        classes=_read_names(layout, folder),
        mean=layout.mean,
        std=layout.std,
    )
    return check_dataset(dataset)


def _read_split(layout: CifarLayout, folder: Path, files: tuple[str, ...], count: int) -> Split:
    batches = [_read_batch(layout, folder / file) for file in files]
    images = torch.cat([images for images, _ in batches])
    if len(images) != count:
        raise InputError(f"{folder}: {' + '.join(files)} holds {len(images)} images; expected {count}")
    return Split(images=images, labels=torch.cat([labels for _, labels in batches]))


def _read_batch(layout: CifarLayout, file: Path) -> tuple[torch.Tensor, torch.Tensor]:
    content = load_arrays(file)
    pixels = _entry(content, "data", file)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3 * SIDE * SIDE,):
        found = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise InputError(f"{file}: 'data' is {found}; expected uint8 (n, {3 * SIDE * SIDE})")
    given = _entry(content, layout.labels_key, file)
    labels = np.asarray(given)
    if labels.shape != (len(pixels),) or labels.dtype.kind not in "iu":
        raise InputError(
            f"{file}: '{layout.labels_key}' is {labels.dtype} {labels.shape}; expected {len(pixels)} integers"
        )
    if len(labels) and not 0 <= labels.min() <= labels.max() < layout.class_count:
        raise InputError(
            f"{file}: labels run from {labels.min()} to {labels.max()}; expected 0 to {layout.class_count - 1}"
        )
    images = torch.from_numpy(pixels.reshape(-1, 3, SIDE, SIDE).copy())
    return images, torch.from_numpy(labels.astype(np.int64))


def _read_names(layout: CifarLayout, folder: Path) -> tuple[str, ...]:
    file = folder / layout.meta_file
    names = _entry(load_arrays(file), layout.names_key, file)
    if not isinstance(names, list) or len(names) != layout.class_count:
        found = len(names) if isinstance(names, list) else type(names).__name__
        raise InputError(f"{file}: '{layout.names_key}' holds {found}; expected {layout.class_count} names")
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)


def _entry(content: dict[str, Any], key: str, file: Path) -> Any:
    if key not in content:
        raise InputError(f"{file}: no entry '{key}'; found: {', '.join(sorted(content)) or 'nothing'}")
    return content[key]
