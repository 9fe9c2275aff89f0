"""Images read ahead are the images that indexing gives, in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from climb.session.feeds import AHEAD, with_images
from climb.streams import Batch


def batches(n: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    return [
        Batch(number=k, indices=torch.randint(0, 50, (3,), generator=generator), ends_segment=None) for k in range(n)
    ]


@pytest.mark.parametrize("n", [0, 2, AHEAD, AHEAD + 7])
def test_every_batch_comes_once_with_its_images(n: int) -> None:
    images = torch.randint(0, 256, (50, 3, 4, 4), dtype=torch.uint8)
    given = batches(n)
    found = list(with_images(iter(given), images, torch.device("cpu")))
    assert [batch.number for batch, _ in found] == list(range(n))
    for batch, pictures in found:
        assert torch.equal(pictures, images[batch.indices])
    ahead = [batch for batch, _ in with_images(iter(given), images, torch.device("meta"))]
    assert [batch.number for batch in ahead] == list(range(n))


@pytest.mark.parametrize(("device", "taken"), [("meta", AHEAD + 2), ("cpu", 1)])
def test_images_that_are_not_on_the_device_are_read_ahead_and_brought_there(device: str, taken: int) -> None:
    read = []

    def reading() -> Iterator[Batch]:
        for batch in batches(20):
            read.append(batch.number)
            yield batch

    found = with_images(reading(), torch.zeros(50, 3, 4, 4, dtype=torch.uint8), torch.device(device))
    assert next(found)[1].device.type == device
    deadline = time.monotonic() + 60
    while len(read) < taken and time.monotonic() < deadline:  # a full queue, and one more that waits for a place
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(read) == taken
    found.close()  # type: ignore[attr-defined]


def test_stopping_early_leaves_no_thread() -> None:
    images = torch.zeros(50, 3, 4, 4, dtype=torch.uint8)
    found = with_images(iter(batches(100)), images, torch.device("meta"))
    for _ in range(3):
        next(found)
    found.close()  # type: ignore[attr-defined]
    assert "climb-find" not in [thread.name for thread in threading.enumerate()]


def test_what_goes_wrong_while_reading_is_raised_where_the_batch_is_asked_for() -> None:
    images = torch.zeros(2, 3, 4, 4, dtype=torch.uint8)
    with pytest.raises(IndexError):
        list(with_images(iter(batches(10)), images, torch.device("meta")))
