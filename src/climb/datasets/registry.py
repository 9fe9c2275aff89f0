"""Datasets by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from climb.datasets.cifar import cifar10, cifar100
from climb.datasets.dataset import Dataset
from climb.datasets.folder import folder, folder_fingerprint
from climb.datasets.imagenet100 import imagenet100, imagenet100_fingerprint
from climb.datasets.synthetic import synthetic
from climb.datasets.tiny_imagenet import tiny_imagenet
from climb.errors import InputError, unknown


@dataclass(frozen=True, kw_only=True)
class _Entry:
    loader: Callable[..., Dataset]
    summary: str
    image_size: int
    fingerprint: Callable[..., str | None] | None = None
    """Takes the root and the loader's options; None where the name and the options say which images there are."""


_REGISTRY = {
    "synthetic": _Entry(
        image_size=32, loader=synthetic, summary="textures made on the fly, any number of classes; no files"
    ),
    "cifar100": _Entry(
        image_size=32,
        loader=cifar100,
        summary="CIFAR-100, 32 px; ROOT/cifar-100-python, $CLIMB_DATA, the cache, or downloaded (161 MB)",
    ),
    "cifar10": _Entry(
        image_size=32,
        loader=cifar10,
        summary="CIFAR-10, 32 px; ROOT/cifar-10-batches-py, $CLIMB_DATA, the cache, or downloaded (163 MB)",
    ),
    "tiny-imagenet": _Entry(
        image_size=64,
        loader=tiny_imagenet,
        summary="Tiny-ImageNet, 64 px; ROOT/tiny-imagenet-200, $CLIMB_DATA, the cache, or downloaded (237 MB)",
    ),
    "imagenet100": _Entry(
        image_size=224,
        loader=imagenet100,
        fingerprint=imagenet100_fingerprint,
        summary="100 classes of a local ImageNet, 224 px; ROOT/train/<wnid> and ROOT/val/<wnid>",
    ),
    "folder": _Entry(
        image_size=64,
        loader=folder,
        fingerprint=folder_fingerprint,
        summary="your images: ROOT/train|test/<class>/, ROOT/<class>/, or flat in ROOT",
    ),
}


def names() -> dict[str, str]:
    """Each dataset's name, with one line on what it is and where it is looked for.

    >>> sorted(names())
    ['cifar10', 'cifar100', 'folder', 'imagenet100', 'synthetic', 'tiny-imagenet']
    """
    return {name: entry.summary for name, entry in _REGISTRY.items()}


def own_image_size(name: str) -> int:
    """Side of the images that `load` gives when none is asked for.

    >>> own_image_size("tiny-imagenet")
    64
    """
    if name not in _REGISTRY:
        raise unknown("dataset", name, _REGISTRY)
    return _REGISTRY[name].image_size


def load(
    name: str,
    *,
    root: Path | str | None = None,
    image_size: int | None = None,
    seed: int = 0,
    download: bool = True,
    **options: Any,
) -> Dataset:
    """The dataset called ``name``, decoded and checked.

    ``root`` is the folder it lies in; ``image_size`` the side of the images where that can be chosen (None: the
    dataset's own); ``seed`` drives whatever is drawn; ``download=False`` forbids fetching. ``options`` are those
    of the dataset's own function, for example ``classes=20`` for ``synthetic``.

    >>> data = load("synthetic", classes=3, train_per_class=5, test_per_class=2)
    >>> len(data.train), len(data.test), data.image_size
    (15, 6, 32)
    """
    if name not in _REGISTRY:
        raise unknown("dataset", name, _REGISTRY)
    loader = _REGISTRY[name].loader
    accepted = inspect.signature(loader).parameters
    for option in options:
        if option not in accepted:
            raise unknown(f"option of dataset '{name}'", option, accepted)
    # None means "not chosen"; a choice that the dataset cannot honour is refused, not ignored.
    for option, chosen in {"root": root, "image_size": image_size}.items():
        if chosen is not None:
            if option not in accepted:
                raise InputError(f"dataset '{name}' takes no {option}, but {option}={chosen} was given")
            options[option] = chosen
    # Every dataset may be asked with a seed and a download policy; those without use for them ignore both.
    everywhere = {"seed": seed, "download": download}
    options |= {option: value for option, value in everywhere.items() if option in accepted}
    return loader(**options)


def fingerprint(name: str, *, root: Path | str | None = None, **options: Any) -> str | None:
    """What the images of a dataset are known by where its name does not say which they are, as with people's own.

    It comes of names and sizes of files, not of where they lie. None for datasets of fixed content, and where nothing
    is found; `load` says what is missing.

    >>> fingerprint("cifar100") is None
    True
    """
    if name not in _REGISTRY:
        raise unknown("dataset", name, _REGISTRY)
    look = _REGISTRY[name].fingerprint
    if look is None:
        return None
    accepted = inspect.signature(look).parameters
    return look(root=root, **{option: value for option, value in options.items() if option in accepted})
