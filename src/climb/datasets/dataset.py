"""What a dataset is: uint8 images and labels in a training and a test part, with checks and channel statistics.

Each dataset registers itself in its own file, with the decorator `register`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from climb.arguments import checked
from climb.errors import InputError, first_few, unknown
from climb.registry import Registry, first_line

Channels = tuple[float, float, float]
"""One number for each of red, green and blue."""
NORMALISATIONS = ("measured", "released")
RELEASED: tuple[Channels, Channels] = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
"""Means and deviations by which the paper's released code normalises CIFAR-10 and Tiny-ImageNet.

The means are CIFAR-10's. Its deviations are means of each image's own, which are smaller than that over all pixels."""

_CHUNK = 1024


@dataclass(frozen=True, kw_only=True)
class Split:
    """One part of a dataset."""

    images: torch.Tensor
    """uint8 (n, 3, H, W); may be memory-mapped from the cache."""
    labels: torch.Tensor
    """int64 (n,), on the CPU, in 0 .. classes - 1. For probes and reports only: learners never see them."""
    names: tuple[str, ...] = ()
    """File names relative to the dataset's folder; () if the images are not in files of their own."""
    domains: torch.Tensor | None = None
    """int64 (n,), on the CPU: the domain of each image; None for a dataset without domains."""

    def __len__(self) -> int:
        return int(self.images.shape[0])


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A training and a test part with the same classes."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    """Class names; label i is ``classes[i]``."""
    mean: Channels
    """Mean of each channel over the training images, on the 0..1 scale."""
    std: Channels
    domains: tuple[str, ...] = ()
    """Names of the domains; the split's domain i is ``domains[i]``."""

    @property
    def image_size(self) -> int:
        """Side of the square images, in pixels."""
        return int(self.train.images.shape[-1])

    def to(self, device: torch.device | str) -> Dataset:
        """The same dataset with its images on ``device``; the labels stay on the CPU."""
        train, test = (replace(split, images=split.images.to(device)) for split in (self.train, self.test))
        return replace(self, train=train, test=test)


def check_dataset(dataset: Dataset) -> Dataset:
    """The dataset itself, if its shapes, types and labels are valid and every class has an image; else an InputError.

    The test part may be empty, as that of a flat folder, but it must not lack some of the classes.
    """
    where = f"dataset '{dataset.name}'"
    for part, split in (("training", dataset.train), ("test", dataset.test)):
        (count, *shape), pixels, labels = split.images.shape, split.images.dtype, split.labels
        if pixels != torch.uint8 or len(shape) != 3 or shape[0] != 3:
            raise InputError(
                f"{where}: {part} images are {pixels} {(count, *shape)}; expected torch.uint8 (n, 3, H, W)"
            )
        if labels.dtype != torch.int64 or labels.shape != (count,):
            kind = f"{labels.dtype} {tuple(labels.shape)}"
            raise InputError(f"{where}: {part} labels are {kind}; expected torch.int64 ({count},)")
        present, expected = set(labels.tolist()), range(len(dataset.classes))
        if not present.issubset(expected):
            span = f"run from {min(present)} to {max(present)}"
            raise InputError(f"{where}: {part} labels {span}; expected 0 to {expected[-1]}")
        missing = [name for label, name in enumerate(dataset.classes) if label not in present]
        if missing and count:
            raise InputError(f"{where}: no {part} image of class {first_few(missing)}; every class needs at least one")
    if len(dataset.train) == 0:
        raise InputError(f"{where} has no training images")
    train, test = (tuple(split.images.shape[1:]) for split in (dataset.train, dataset.test))
    if train != test:
        raise InputError(f"{where}: training images are {train} but test images are {test}; both must be the same")
    return dataset


def channel_statistics(images: torch.Tensor) -> tuple[Channels, Channels]:
    """Exact mean and standard deviation of each channel, on the 0..1 scale.

    ``images``: uint8 (n, 3, H, W), n at least 1. They are read in chunks and may be larger than memory.

    >>> mean, std = channel_statistics(torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 4, 4))
    >>> mean, std
    ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    """
    counts = torch.zeros(3, 256, dtype=torch.int64)
    for chunk in torch.split(images, _CHUNK):
        for channel in range(3):
            counts[channel] += torch.bincount(chunk[:, channel].flatten(), minlength=256).cpu()
    levels = torch.arange(256, dtype=torch.float64) / 255
    share = counts / counts.sum(dim=1, keepdim=True).double()
    mean = (share * levels).sum(dim=1)
    variance = (share * (levels - mean[:, None]) ** 2).sum(dim=1)
    # A constant channel has no spread; dividing by one grey level keeps normalised images finite.
    std = variance.sqrt().clamp(min=1 / 255)
    return tuple(mean.tolist()), tuple(std.tolist())


# -- datasets by name --------------------------------------------------------------------------------------------------

Loader = TypeVar("Loader", bound=Callable[..., Dataset])


@dataclass(frozen=True, kw_only=True)
class DatasetKind:
    """How to load a dataset."""

    load: Callable[..., Dataset]
    image_size: int
    """Side of its images by default."""
    fingerprint: Callable[..., str | None] | None = None
    """Identifies the images if the name does not. Takes ``root`` and some options of ``load``."""


DATASETS = Registry[DatasetKind]("dataset", builtin=["climb.datasets.*"])


def register(name: str, **attributes: Any) -> Callable[[Loader], Loader]:
    """Register a function that loads a dataset. ``attributes`` are the other fields of `DatasetKind`.

    The first line of the function's docstring describes the dataset in ``climb data``.

    >>> with DATASETS.scoped():
    ...     @register("two-textures", image_size=16)
    ...     def two_textures(*, image_size: int = 16, seed: int = 0) -> Dataset:
    ...         "Two textures."
    ...         return load("synthetic", classes=2, image_size=image_size, seed=seed)
    ...     load("two-textures").classes
    ('crosses', 'stripes')
    """
    return DATASETS.register(name, lambda loader: DatasetKind(load=loader, **attributes))


def names() -> dict[str, str]:
    """The name of each dataset, with one line on what it is and where it is looked for.

    >>> sorted(names())
    ['cifar10', 'cifar100', 'domains', 'folder', 'imagenet100', 'synthetic', 'tiny-imagenet']
    """
    return {name: first_line(entry.load.__doc__) for name, entry in DATASETS.items()}


def own_image_size(name: str) -> int:
    """Side of the images that `load` gives by default.

    >>> own_image_size("tiny-imagenet")
    64
    """
    return DATASETS.find(name).image_size


@checked(image_size=1)
def load(
    name: str,
    *,
    root: Path | str | None = None,
    image_size: int | None = None,
    seed: int = 0,
    download: bool = True,
    normalisation: str = "measured",
    **options: Any,
) -> Dataset:
    """The dataset called ``name``, decoded and checked.

    Args:
        name: name of the dataset, see `names`.
        root: its folder.
        image_size: side of the images, for datasets that offer a choice; None takes the dataset's own.
        seed: seed of all that is drawn at random.
        download: whether to download the dataset if it is not on this machine.
        normalisation: statistics of CIFAR-10 and Tiny-ImageNet: "measured", or "released" for the constants of the
            paper's released code.
        options: further arguments of the dataset's own function, such as ``classes=20`` of ``synthetic``.

    >>> data = load("synthetic", classes=3, train_per_class=5, test_per_class=2)
    >>> len(data.train), len(data.test), data.image_size
    (15, 6, 32)
    """
    loader = DATASETS.find(name).load
    accepted = inspect.signature(loader).parameters
    options |= {
        option: value for option, value in {"root": root, "image_size": image_size}.items() if value is not None
    }
    for option, value in options.items():
        if option not in accepted:
            raise InputError(f"dataset '{name}' takes no {option}={value}: {unknown('option', option, accepted)}")
    if normalisation not in NORMALISATIONS:
        raise unknown("normalisation", normalisation, NORMALISATIONS)
    # These apply to all datasets; those without a use for one ignore it.
    general = {"seed": seed, "download": download, "normalisation": normalisation}
    return loader(**options, **{option: value for option, value in general.items() if option in accepted})


def fingerprint(name: str, *, root: Path | str | None = None, **options: Any) -> str | None:
    """Identifies the images of a dataset by names and sizes of files, not by their folder.

    None for a dataset of fixed content, and if the files are not found: `load` then says what is missing.

    >>> fingerprint("cifar100") is None
    True
    """
    compute = DATASETS.find(name).fingerprint
    if compute is None:
        return None
    accepted = inspect.signature(compute).parameters
    return compute(root=root, **{option: value for option, value in options.items() if option in accepted})
