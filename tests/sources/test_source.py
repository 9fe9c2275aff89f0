"""Sources of other packages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from climb.errors import InputError
from climb.sources import open_source, register

PLUGIN = """
import torch
from climb.sources import register
from climb.sources.item import digest, loaded


@register("noise", help="noise:COUNT for random images", takes=lambda address: address.startswith("noise:"))
def read_noise(address, options):
    def read(seen, stop):
        for number in range(int(address.removeprefix("noise:"))):
            generator = torch.Generator().manual_seed(number)
            shape = (3, options.image_size, options.image_size)
            image = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
            if seen(digest("noise", number)):
                yield loaded(f"{address}#{number}", digest("noise", number), image)

    return read
"""


def test_an_installed_package_adds_a_source(install: Callable[[str, str], Path]) -> None:
    install("plugin_with_a_source", PLUGIN)
    source = open_source("noise:3", image_size=16)
    assert [item.where for item in source] == ["noise:3#0", "noise:3#1", "noise:3#2"]
    assert (source.name, source.rereadable, source.endless) == ("noise:3", True, False)
    with pytest.raises(InputError, match=r"Allowed: .*noise:COUNT for random images"):
        open_source("nowhere", image_size=16)
    with pytest.raises(InputError, match="watch follows a folder"):
        open_source("noise:3", image_size=16, watch=True)


def test_a_package_that_cannot_be_imported_is_named(install: Callable[[str, str], Path]) -> None:
    install("broken_plugin_with_a_source", "import nothing_by_this_name")
    with pytest.raises(InputError, match=r"'noise:3' does not exist.*\n.*missing because .*'broken_plugin"):
        open_source("noise:3", image_size=16)


@pytest.mark.usefixtures("registries")
def test_a_name_belongs_to_one_source() -> None:
    with pytest.raises(InputError, match="there is a source 'folder' already"):

        @register("folder", help="a folder", takes=lambda address: True)
        def read_folder(address: object, options: object) -> None: ...
