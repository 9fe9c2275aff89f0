"""Images of more than 8 bits: one range, one line of log, and the same tensor from everywhere."""

from __future__ import annotations

import logging
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from climb.datasets import load
from climb.errors import InputError
from climb.export.embed import decode_one
from climb.images.tensors import Decoder
from climb.sources import open_source

RANGE = (7000.0, 9000.0)


@pytest.fixture
def infrared(tmp_path: Path) -> Path:
    """A flat folder of 16-bit images with values of 7000 to 8000."""
    folder = tmp_path / "infrared"
    folder.mkdir()
    for number in range(6):
        values = np.random.default_rng(number).integers(7000, 8001, (24, 32)).astype(np.uint16)
        values[0, :2] = 7000, 8000
        Image.fromarray(values).save(folder / f"{number}.{'png' if number % 2 else 'tif'}")
    return folder


def shard_of(folder: Path) -> Path:
    with tarfile.open(folder.parent / "shard.tar", "w") as shard:
        for path in sorted(folder.iterdir()):
            shard.add(path, path.name)
    return folder.parent / "shard.tar"


def table_of(folder: Path) -> str:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [path.read_bytes() for path in sorted(folder.iterdir())]
    parquet.write_table(pytest.importorskip("pyarrow").table({"image": rows}), folder.parent / "table.parquet")
    return f"hf:{folder.parent / 'table.parquet'}"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "folder": lambda folder: folder,
    "shard": shard_of,
    "table": table_of,
    "paths": lambda folder: sorted(folder.iterdir()),
    "bytes": lambda folder: [path.read_bytes() for path in sorted(folder.iterdir())],
    "pictures": lambda folder: [Image.open(path) for path in sorted(folder.iterdir())],
}


@pytest.mark.parametrize("pixel_range", [None, RANGE])
@pytest.mark.parametrize("kind", SOURCES)
def test_a_source_and_a_dataset_decode_a_file_to_the_same_image(
    kind: str, pixel_range: tuple[float, float] | None, infrared: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = load("folder", root=infrared, image_size=16, pixel_range=pixel_range).train.images
    caplog.set_level(logging.INFO, logger="climb.images")
    caplog.clear()
    source = open_source(SOURCES[kind](infrared), image_size=16, pixel_range=pixel_range)
    assert torch.equal(torch.stack([item.image for item in source]), dataset)
    messages = [record.getMessage() for record in caplog.records if record.name == "climb.images"]
    assert len(messages) == 1, messages
    assert ("from 7000 to 9000" in messages[0]) if pixel_range else ("--pixel-range LOW HIGH" in messages[0])
    one = decode_one(sorted(infrared.iterdir())[3], 16, pixel_range)
    assert torch.equal(one, dataset[3])


def test_the_range_decides_the_grey_levels(infrared: Path) -> None:
    own, given, wide = (
        load("folder", root=infrared, image_size=24, pixel_range=pixel_range).train.images
        for pixel_range in (None, RANGE, [0, 65535])
    )
    assert (int(own.min()), int(own.max())) == (0, 255)
    assert (int(given.min()), int(given.max())) == (0, 128)
    assert len(wide.unique()) == 5  # what the upper 8 bits keep
    assert len(own.unique()) == 256


def test_a_range_must_be_two_numbers_in_order(infrared: Path) -> None:
    for wrong in ((8000, 7000), (7000,), (1, 2, 3), (0, float("inf")), ("a", "b"), 5, np.zeros((2, 2))):
        with pytest.raises(InputError, match="pixel_range must be two finite numbers, the smaller one first") as error:
            open_source(infrared, image_size=16, pixel_range=wrong)  # type: ignore[arg-type]
        assert "\n" not in str(error.value)
        with pytest.raises(InputError, match="pixel_range must be two finite numbers, the smaller one first"):
            load("folder", root=infrared, image_size=16, pixel_range=wrong)


def test_many_threads_log_one_line(caplog: pytest.LogCaptureFixture, infrared: Path) -> None:
    caplog.set_level(logging.INFO, logger="climb.images")
    decoder, files = Decoder(image_size=8), [str(path) for path in infrared.iterdir()]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(decoder.file, files * 4))
    assert len(caplog.records) == 1


def test_images_of_8_bits_log_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="climb.images")
    grey = Decoder(image_size=2, pixel_range=(0, 100)).picture(Image.new("L", (4, 4), 50), "grey")
    assert grey.unique().tolist() == [50]
    assert caplog.records == []
