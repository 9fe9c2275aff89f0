"""Images read ahead are the images that indexing gives, in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from climb.runs.prefetch import AHEAD, read_ahead, with_images
from climb.streams import Batch


def batches(n: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    return [
        Batch(number=k, indices=torch.randint(0, 50, (3,), generator=generator), ends_segment=None) for k in range(n)
    ]


@pytest.mark.parametrize("n", [0, 2, AHEAD, AHEAD + 7])
@pytest.mark.parametrize("source", [with_images, read_ahead])
def test_every_batch_comes_once_with_its_images(n: int, source: Callable[..., Iterator[tuple[Batch, Tensor]]]) -> None:
    images = torch.randint(0, 256, (50, 3, 4, 4), dtype=torch.uint8)
    given = batches(n)
    found = list(source(given, images, torch.device("cpu")))
    assert [batch.number for batch, _ in found] == list(range(n))
    for batch, pictures in found:
        assert torch.equal(pictures, images[batch.indices])


@pytest.mark.parametrize(("device", "taken"), [("meta", AHEAD + 1), ("cpu", 1)])
def test_images_that_are_not_on_the_device_are_read_ahead_and_brought_there(device: str, taken: int) -> None:
    waiting = iter(batches(20))
    found = with_images(waiting, torch.zeros(50, 3, 4, 4, dtype=torch.uint8), torch.device(device))
    assert next(found)[1].device.type == device
    assert len(list(waiting)) == 20 - taken


def test_stopping_early_leaves_no_thread() -> None:
    images = torch.zeros(50, 3, 4, 4, dtype=torch.uint8)
    for number, _ in enumerate(read_ahead(batches(100), images, torch.device("cpu"))):
        if number == 3:
            break
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("climb-prefetch")]


def test_what_goes_wrong_while_reading_is_raised_where_the_batch_is_asked_for() -> None:
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    with pytest.raises(IndexError):
        list(read_ahead(batches(10), images, torch.device("cpu")))
