from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from climb.datasets import fingerprint, load, names, own_image_size, synthetic
from climb.errors import InputError


def test_every_name_has_one_line() -> None:
    assert {"synthetic", "cifar100", "cifar10", "tiny-imagenet", "imagenet100", "folder", "domains"} == set(names())
    assert all(line and "\n" not in line for line in names().values())


def test_load_is_the_function_of_that_name() -> None:
    options = {"classes": 3, "train_per_class": 4, "test_per_class": 2, "image_size": 16, "seed": 9}
    loaded, direct = load("synthetic", **options), synthetic(**options)  # type: ignore[arg-type]
    assert torch.equal(loaded.train.images, direct.train.images)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cifar", {}, "unknown dataset 'cifar'; did you mean 'cifar10.*'. Allowed: cifar10, cifar100, domains, folder"),
        (
            "synthetic",
            {"clases": 3},
            "dataset 'synthetic' takes no clases=3: unknown option 'clases'; did you mean 'classes'",
        ),
        (
            "synthetic",
            {"root": Path("x")},
            "dataset 'synthetic' takes no root=x: unknown option 'root'. Allowed: classes",
        ),
        ("cifar100", {"image_size": 64}, "dataset 'cifar100' takes no image_size=64: .*Allowed: download"),
    ],
)
def test_invalid_names_and_options_are_refused(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(name, **options)  # type: ignore[arg-type]


PLUGIN = """
from climb.datasets import register, synthetic


@register("four-textures", image_size=16)
def four_textures(*, image_size=16, seed=0):
    "Four textures."
    return synthetic(classes=4, train_per_class=3, test_per_class=1, image_size=image_size, seed=seed)
"""


def test_an_installed_package_adds_a_dataset(install: Callable[[str, str], Path]) -> None:
    install("plugin_with_a_dataset", PLUGIN)
    assert own_image_size("four-textures") == 16
    assert len(load("four-textures", image_size=24, seed=1).train) == 12
    assert names()["four-textures"] == "Four textures."
    assert fingerprint("four-textures") is None
