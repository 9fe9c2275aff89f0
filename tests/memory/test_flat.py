"""The flat buffers: which images they hold, and that a reservoir is a fair one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from traffic import IMAGE_SHAPE, numbered_images, numbers_of

from climb.errors import InputError
from climb.memory import FifoMemory, InsertReport, ReservoirMemory
from climb.seeds import numpy_generator


def test_fifo_reports_what_it_replaces() -> None:
    memory = FifoMemory(5, IMAGE_SHAPE, 2)
    assert memory.insert(numbered_images(0, 3), None) == InsertReport(novel=3)
    assert memory.insert(numbered_images(3, 4), None) == InsertReport(novel=2, replaced=2)
    batch = memory.sample(5)
    assert batch is not None
    assert sorted(numbers_of(batch.images)) == [2, 3, 4, 5, 6]


def test_reservoir_is_the_classic_one() -> None:
    memory = ReservoirMemory(6, IMAGE_SHAPE, 2, seed=3)
    memory.insert(numbered_images(0, 90), None)
    rng = numpy_generator(3, "memory")
    expected = list(range(6))
    for image in range(6, 90):
        slot = int(rng.integers(image + 1))
        if slot < 6:
            expected[slot] = image
    batch = memory.sample(6)
    assert batch is not None
    assert sorted(batch.ids.tolist()) == sorted(expected)
    assert numbers_of(batch.images) == batch.ids.tolist()


def test_reservoir_keeps_early_and_late_images_alike() -> None:
    images = numbered_images(0, 40)
    kept = np.zeros(40)
    for seed in range(400):
        memory = ReservoirMemory(8, IMAGE_SHAPE, 2, seed=seed)
        memory.insert(images, None)
        batch = memory.sample(8)
        assert batch is not None
        kept[batch.ids.numpy()] += 1
    # Each is kept 80 times of 400, give or take sqrt(400 * 0.2 * 0.8) = 8.
    assert kept.sum() == 400 * 8
    assert np.abs(kept - 80).max() < 4 * 8
    assert abs(kept[:20].mean() - 80) < 6


@pytest.mark.parametrize("kind", [FifoMemory, ReservoirMemory])
def test_draws_are_uniform_over_what_is_stored(kind: type[FifoMemory | ReservoirMemory]) -> None:
    memory = kind(10, IMAGE_SHAPE, 2)
    memory.insert(numbered_images(0, 10), None)
    drawn = np.zeros(10)
    for _ in range(1000):
        batch = memory.sample(3)
        assert batch is not None
        drawn[batch.ids.numpy()] += 1
    assert np.abs(drawn / 1000 - 0.3).max() < 0.06


@pytest.mark.parametrize("kind", [FifoMemory, ReservoirMemory])
def test_impossible_input_is_refused(kind: type[FifoMemory | ReservoirMemory]) -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1; given 0"):
        kind(0, IMAGE_SHAPE, 2)
    memory = kind(4, IMAGE_SHAPE, 2)
    with pytest.raises(InputError, match=r"uint8 images of shape \(n, 3, 4, 4\); given torch\.float32"):
        memory.insert(torch.zeros(1, *IMAGE_SHAPE), None)
    with pytest.raises(InputError, match=r"given torch\.uint8 of shape \(1, 3, 5, 5\)"):
        memory.insert(torch.zeros(1, 3, 5, 5, dtype=torch.uint8), None)
    full = kind(5, IMAGE_SHAPE, 2)  # one more than there is room for
    full.insert(numbered_images(0, 5), None)
    with pytest.raises(InputError, match=r"holds 5 images.*room for 4"):
        memory.load_state_dict(full.state_dict())
    larger = kind(4, (3, 5, 5), 2)
    larger.insert(torch.zeros(1, 3, 5, 5, dtype=torch.uint8), None)
    with pytest.raises(InputError, match=r"of shape \(3, 5, 5\), .* of shape \(3, 4, 4\)"):
        memory.load_state_dict(larger.state_dict())


@pytest.mark.parametrize("kind", [FifoMemory, ReservoirMemory])
def test_a_full_memory_is_not_continued_by_a_larger_one(kind: type[FifoMemory | ReservoirMemory]) -> None:
    """It would skip slots, and then draw from slots that hold nothing."""
    full, larger = kind(5, IMAGE_SHAPE, 2), kind(10, IMAGE_SHAPE, 2)
    full.insert(numbered_images(0, 5), None)
    larger.load_state_dict(full.state_dict())  # nothing has been let go yet
    assert len(larger) == 5
    full.insert(numbered_images(5, 12), None)
    with pytest.raises(InputError, match=r"holds 5 images .* of 17 seen; this one has room for 10"):
        larger.load_state_dict(full.state_dict())


@pytest.mark.parametrize(("slot", "stored"), [(20, 20), (-1, 3), (5, 3)])
def test_a_slot_that_is_none_is_refused(slot: int, stored: int) -> None:
    class Odd(FifoMemory):
        def _slots(self, images: torch.Tensor, embed: object) -> list[int]:
            return [slot] if len(images) == 1 else list(range(len(images)))

    memory = Odd(20, (3, 8, 8), 16)
    memory.insert(torch.zeros(stored, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(
        InputError, match=rf"Odd\._slots gave slot {slot} with {stored} of 20 .*allowed: 0 to 19, empty"
    ):
        memory.insert(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
