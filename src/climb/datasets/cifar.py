"""CIFAR-10 and CIFAR-100, in their standard Python layout."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from climb.datasets.dataset import RELEASED, Channels, Dataset, Split, check_dataset, register
from climb.datasets.download import Archive, locate
from climb.errors import ClimbError, InputError

SIDE = 32


@dataclass(frozen=True, kw_only=True)
class CifarLayout:
    """Files and contents of a CIFAR folder."""

    archive: Archive
    """Its contents: the files of training images, the file of test images, the file of class names."""
    labels_key: str
    names_key: str
    mean: Channels
    std: Channels
    train_count: int = 50_000
    test_count: int = 10_000


CIFAR100 = CifarLayout(
    archive=Archive(
        dataset="cifar100",
        folder="cifar-100-python",
        contents=("train", "test", "meta"),
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
    ),
    labels_key="fine_labels",
    names_key="fine_label_names",
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
)

CIFAR10 = CifarLayout(
    archive=Archive(
        dataset="cifar10",
        folder="cifar-10-batches-py",
        contents=(*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta"),
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
    ),
    labels_key="labels",
    names_key="label_names",
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),  # over all pixels of the training images, as widely published
)


@register("cifar100", image_size=SIDE)
def cifar100(*, root: Path | str | None = None, download: bool = True) -> Dataset:
    """CIFAR-100, 32 px; ROOT/cifar-100-python, $CLIMB_DATA, the cache, or downloaded (161 MB)

    Its labels are the 100 fine ones.
    """
    return read_cifar(CIFAR100, root=root, download=download)


@register("cifar10", image_size=SIDE)
def cifar10(*, root: Path | str | None = None, download: bool = True, normalisation: str = "measured") -> Dataset:
    """CIFAR-10, 32 px; ROOT/cifar-10-batches-py, $CLIMB_DATA, the cache, or downloaded (163 MB)"""
    data = read_cifar(CIFAR10, root=root, download=download)
    return replace(data, std=RELEASED[1]) if normalisation == "released" else data


def read_cifar(layout: CifarLayout, *, root: Path | str | None, download: bool) -> Dataset:
    """Read a folder of this layout; check counts, shapes and label range."""
    folder = locate(layout.archive, root=root, download=download)
    *train, test, meta = (folder / name for name in layout.archive.contents)
    (names,) = _read_entries(meta, layout.names_key)
    dataset = Dataset(
        name=layout.archive.dataset,
        train=_read_split(layout, train, layout.train_count),
        test=_read_split(layout, [test], layout.test_count),
        classes=tuple(map(_text, names)),
        mean=layout.mean,
        std=layout.std,
    )
    return check_dataset(dataset)


def _read_split(layout: CifarLayout, files: list[Path], count: int) -> Split:
    images, labels = list[torch.Tensor](), list[int]()
    for file in files:
        pixels, listed = _read_entries(file, "data", layout.labels_key)
        array = np.asarray(pixels)
        if array.dtype != np.uint8 or array.shape[1:] != (3 * SIDE * SIDE,):
            raise InputError(f"{file}: 'data' is {array.dtype} {array.shape}; expected uint8 (n, {3 * SIDE * SIDE})")
        images.append(torch.tensor(array).view(-1, 3, SIDE, SIDE))
        labels += listed
    if sum(map(len, images)) != count:
        names = " + ".join(file.name for file in files)
        raise InputError(f"{files[0].parent}: {names} holds {sum(map(len, images))} images; expected {count}")
    return Split(images=torch.cat(images), labels=torch.tensor(labels))


def _read_entries(file: Path, *keys: str) -> list[Any]:
    """Lists and arrays in the dictionary that is pickled in a file."""
    content = load_arrays(file)
    for key in keys:
        if not isinstance(content.get(key), list | np.ndarray):
            found = ", ".join(f"{name} ({type(content[name]).__name__})" for name in sorted(content)) or "nothing"
            raise InputError(f"{file}: no list or array '{key}'; found: {found}")
    return [content[key] for key in keys]


def _text(value: Any) -> str:
    """Names as text: protocol 2 stores those of Python 2 as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


# -- pickles of arrays, read without running any code in them ----------------------------------------------------------


def _latin1(text: str, encoding: str) -> bytes:
    """Decode bytes as protocol 2 writes them. Other codecs (zip, bz2, ...) could inflate without limit."""
    if encoding != "latin1":
        raise ClimbError(f"refused to decode with '{encoding}'")
    return text.encode("latin1")


_ARRAY: Any = np.zeros(1)
_ALLOWED: dict[str, Callable[..., Any]] = {
    # Taken from numpy's own output: its functions have moved between versions, but old files keep the old names.
    "numpy.core.multiarray._reconstruct": _ARRAY.__reduce__()[0],
    "numpy.core.numeric._frombuffer": _ARRAY.__reduce_ex__(5)[0],
    "numpy.ndarray": np.ndarray,
    "numpy.dtype": np.dtype,
    "_codecs.encode": _latin1,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        allowed = _ALLOWED.get(f"{module}.{name}".replace("numpy._core.", "numpy.core."))
        if allowed is None:
            raise ClimbError(f"refused to load '{module}.{name}': only numpy arrays are allowed")
        return allowed


def load_arrays(path: Path) -> dict[str, Any]:
    """The dictionary pickled in ``path``, with its keys as text.

    Any global that numpy arrays do not need raises a ClimbError.
    """
    try:
        content = _ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except ClimbError as error:
        raise ClimbError(f"{path}: {error}; get the file from its official source") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged pickle can fail in any opcode, each with its own exception
        raise InputError(f"{path} is not a readable pickle ({type(error).__name__}: {error})") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}; expected a dictionary")
    return {_text(key): value for key, value in content.items()}
