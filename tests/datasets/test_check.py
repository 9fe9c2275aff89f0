from __future__ import annotations

import pytest
import torch

from climb.datasets import Dataset, Split, check_dataset
from climb.errors import InputError


def split(labels: list[int], size: int = 8) -> Split:
    return Split(images=torch.zeros(len(labels), 3, size, size, dtype=torch.uint8), labels=torch.tensor(labels).long())


def dataset(train: Split, test: Split, classes: int = 2) -> Dataset:
    names = tuple(f"c{i}" for i in range(classes))
    return Dataset(name="toy", train=train, test=test, classes=names, mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))


def test_a_good_dataset_passes_through() -> None:
    good = dataset(split([0, 1]), split([1, 0]))
    assert check_dataset(good) is good
    assert len(check_dataset(dataset(split([0, 1]), split([]))).test) == 0


@pytest.mark.parametrize(
    ("train", "test", "classes", "message"),
    [
        (split([]), split([]), 2, "dataset 'toy' has no training images"),
        (split([0, 2]), split([0, 1]), 2, "training labels run from 0 to 2; expected 0 to 1"),
        (split([0, 1]), split([-1, 1]), 2, "test labels run from -1 to 1; expected 0 to 1"),
        (split([0, 0]), split([0, 1]), 2, "no training image of class c1; every class needs at least one"),
        (split([*range(9)]), split([0]), 9, "no test image of class c1, c2, c3, c4, c5 and 3 more"),
        (split([0, 1]), split([0, 1], size=9), 2, r"\(3, 8, 8\) but test images are \(3, 9, 9\)"),
    ],
)
def test_errors_name_the_problem(train: Split, test: Split, classes: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_dataset(dataset(train, test, classes))


def test_wrong_types_are_named() -> None:
    floats = Split(images=torch.zeros(2, 3, 8, 8), labels=torch.tensor([0, 1]))
    with pytest.raises(InputError, match=r"torch.float32 \(2, 3, 8, 8\); expected torch.uint8 \(n, 3, H, W\)"):
        check_dataset(dataset(floats, split([0, 1])))
    short = Split(images=torch.zeros(2, 3, 8, 8, dtype=torch.uint8), labels=torch.tensor([0]))
    with pytest.raises(InputError, match=r"labels are torch.int64 \(1,\); expected torch.int64 \(2,\)"):
        check_dataset(dataset(short, split([0, 1])))


def test_to_moves_images_and_leaves_labels() -> None:
    moved = dataset(split([0, 1]), split([0, 1])).to("meta")
    assert moved.train.images.device.type == moved.test.images.device.type == "meta"
    assert moved.train.labels.device.type == "cpu"
    assert moved.image_size == 8
