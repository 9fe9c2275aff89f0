from __future__ import annotations

from pathlib import Path

import pytest
import torch

from climb.datasets import load, names, synthetic
from climb.errors import InputError


def test_every_name_has_one_line() -> None:
    assert {"synthetic", "cifar100", "cifar10", "tiny-imagenet", "imagenet100", "folder"} == set(names())
    assert all(line and "\n" not in line for line in names().values())


def test_load_is_the_function_of_that_name() -> None:
    options = {"classes": 3, "train_per_class": 4, "test_per_class": 2, "image_size": 16, "seed": 9}
    loaded, direct = load("synthetic", **options), synthetic(**options)  # type: ignore[arg-type]
    assert torch.equal(loaded.train.images, direct.train.images)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cifar", {}, "unknown dataset 'cifar'; did you mean 'cifar10.*'. Allowed: cifar10, cifar100, folder"),
        ("synthetic", {"clases": 3}, "unknown option of dataset 'synthetic' 'clases'; did you mean 'classes'"),
        ("synthetic", {"root": Path("x")}, "dataset 'synthetic' takes no root, but root=x was given"),
        ("cifar100", {"image_size": 64}, "dataset 'cifar100' takes no image_size, but image_size=64 was given"),
    ],
)
def test_what_cannot_be_asked_for(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(name, **options)  # type: ignore[arg-type]
