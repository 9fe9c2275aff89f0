"""Flat memories: which images they store, and slots chosen by subclasses."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from traffic import IMAGE_SHAPE, numbered_images, numbers_of

from climb.errors import InputError
from climb.memory import FifoMemory, InsertReport, MinRedMemory, PartAndSelectMemory, ReservoirMemory
from climb.memory.contract import Space
from climb.memory.flat import FlatMemory
from climb.seeds import numpy_generator
from climb.testing import check_memory


def test_fifo_reports_what_it_replaces() -> None:
    memory = FifoMemory(5, IMAGE_SHAPE, 2)
    assert memory.insert(numbered_images(0, 3), None) == InsertReport(novel=3)
    assert memory.insert(numbered_images(3, 4), None) == InsertReport(novel=2, replaced=2)
    batch = memory.sample(5)
    assert batch is not None
    assert sorted(numbers_of(batch.images)) == [2, 3, 4, 5, 6]


def test_reservoir_equals_vitters_algorithm() -> None:
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


def test_reservoir_stores_early_and_late_images_equally_often() -> None:
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
def test_draws_are_uniform(kind: type[FifoMemory | ReservoirMemory]) -> None:
    memory = kind(10, IMAGE_SHAPE, 2)
    memory.insert(numbered_images(0, 10), None)
    drawn = np.zeros(10)
    for _ in range(1000):
        batch = memory.sample(3)
        assert batch is not None
        drawn[batch.ids.numpy()] += 1
    assert np.abs(drawn / 1000 - 0.3).max() < 0.06


@pytest.mark.parametrize("kind", [FifoMemory, ReservoirMemory])
def test_impossible_input_is_rejected(kind: type[FifoMemory | ReservoirMemory]) -> None:
    with pytest.raises(ValueError, match="capacity must be at least 1; given 0"):
        kind(0, IMAGE_SHAPE, 2)
    memory = kind(4, IMAGE_SHAPE, 2)
    with pytest.raises(InputError, match=r"uint8 images of shape \(n, 3, 4, 4\); given torch\.float32"):
        memory.insert(torch.zeros(1, *IMAGE_SHAPE), None)
    with pytest.raises(InputError, match=r"given torch\.uint8 of shape \(1, 3, 5, 5\)"):
        memory.insert(torch.zeros(1, 3, 5, 5, dtype=torch.uint8), None)
    full = kind(5, IMAGE_SHAPE, 2)
    full.insert(numbered_images(0, 5), None)
    with pytest.raises(InputError, match=r"holds 5 images.*capacity of 4"):
        memory.load_state_dict(full.state_dict())
    larger = kind(4, (3, 5, 5), 2)
    larger.insert(torch.zeros(1, 3, 5, 5, dtype=torch.uint8), None)
    with pytest.raises(InputError, match=r"of shape \(3, 5, 5\), .* of shape \(3, 4, 4\)"):
        memory.load_state_dict(larger.state_dict())


@pytest.mark.parametrize("kind", [FifoMemory, ReservoirMemory])
def test_a_larger_memory_rejects_the_state_of_a_full_one(kind: type[FifoMemory | ReservoirMemory]) -> None:
    """It would skip slots and sample empty ones."""
    full, larger = kind(5, IMAGE_SHAPE, 2), kind(10, IMAGE_SHAPE, 2)
    full.insert(numbered_images(0, 5), None)
    larger.load_state_dict(full.state_dict())  # nothing has been replaced yet
    assert len(larger) == 5
    full.insert(numbered_images(5, 12), None)
    with pytest.raises(InputError, match=r"holds 5 images .* of 17 seen; this one has a capacity of 10"):
        larger.load_state_dict(full.state_dict())


@pytest.mark.parametrize(("slot", "stored"), [(20, 20), (-1, 3), (5, 3)])
def test_an_invalid_slot_is_rejected(slot: int, stored: int) -> None:
    class Odd(FifoMemory):
        def _slots(self, images: torch.Tensor, embeddings: object, embed: object) -> list[int]:
            return [slot] if len(images) == 1 else list(range(len(images)))

    memory = Odd(20, (3, 8, 8), 16)
    memory.insert(torch.zeros(stored, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(
        InputError, match=rf"Odd\._slots gave slot {slot} with {stored} of 20 .*allowed: 0 to 19, empty"
    ):
        memory.insert(torch.zeros(1, 3, 8, 8, dtype=torch.uint8))


class LongestEmbeddingMemory(FlatMemory):
    """A third-party memory that keeps the images with the longest embeddings."""

    space: ClassVar[Space | None] = "backbone"

    def __init__(self, *sizes: Any, seed: int = 0) -> None:
        super().__init__(*sizes, seed=seed)
        self.lengths: list[float] = []

    def _slots(self, images: torch.Tensor, embeddings: torch.Tensor | None, embed: Any) -> list[int | None]:
        assert embeddings is not None
        slots: list[int | None] = []
        for length in embeddings.norm(dim=1).tolist():
            if len(self.lengths) < self.capacity:
                slots.append(len(self.lengths))
                self.lengths.append(length)
                continue
            shortest = min(range(self.capacity), key=self.lengths.__getitem__)
            slots.append(shortest if length > self.lengths[shortest] else None)
            self.lengths[shortest] = max(length, self.lengths[shortest])
        return slots

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "lengths": list(self.lengths)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.lengths = list(state["lengths"])


def test_a_subclass_chooses_slots_by_embedding() -> None:
    memory = LongestEmbeddingMemory(2, IMAGE_SHAPE, 1)
    reports = [memory.insert(numbered_images(n, 2), torch.tensor([[9.0 - n], [n + 1.0]])) for n in (0, 2, 4)]
    assert [(report.novel, report.replaced, report.rejected) for report in reports] == [(2, 0, 0), (0, 1, 1), (0, 0, 2)]
    batch = memory.sample(2)
    assert batch is not None
    assert sorted(batch.ids.tolist()) == [0, 2]
    with pytest.raises(InputError, match=r"embeddings must have shape \(1, 1\); given None"):
        memory.insert(numbered_images(6, 1))
    check_memory(lambda seed: LongestEmbeddingMemory(20, (3, 8, 8), 16, seed=seed))


def test_a_memory_without_a_space_receives_no_embeddings() -> None:
    class Curious(FifoMemory):
        def _slots(self, images: torch.Tensor, embeddings: object, embed: object) -> list[int]:
            assert embeddings is None
            return super()._slots(images, None, None)

    Curious(4, IMAGE_SHAPE, 1).insert(numbered_images(0, 2), torch.zeros(2, 1))


def test_a_subclass_that_stores_embeddings_keeps_its_space() -> None:
    class Backbone(FifoMemory):
        space: ClassVar[Space | None] = "backbone"

    assert Backbone(4, IMAGE_SHAPE, 1, embedding_rate=0.5).space == "backbone"
    assert FifoMemory(4, IMAGE_SHAPE, 1, embedding_rate=0.5).space == "projector"


@pytest.mark.parametrize("kind", [FifoMemory, ReservoirMemory, MinRedMemory, PartAndSelectMemory])
def test_a_subclass_of_the_earlier_release_works_and_warns(kind: type[FlatMemory]) -> None:
    with pytest.warns(
        DeprecationWarning, match=r"Older\._slots\(images, embed\) must become _slots\(images, emb"
    ) as warned:

        class Older(kind):  # type: ignore[misc, valid-type]
            def _slots(self, images: torch.Tensor, embed: Any) -> Any:
                assert embed is None or callable(embed)
                return super()._slots(images, embed)

    assert [warning.filename for warning in warned] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        class Child(Older): ...

    class Newer(Older):
        def _slots(self, images: torch.Tensor, embeddings: torch.Tensor | None, embed: Any) -> Any:
            return super()._slots(images, embeddings, embed)

    with pytest.warns(DeprecationWarning, match="OlderAgain"):

        class OlderAgain(Older):
            def _slots(self, images: torch.Tensor, embed: Any) -> Any:
                return super()._slots(images, embed)

    generator = torch.Generator().manual_seed(0)
    memories = [each(20, IMAGE_SHAPE, 4) for each in (kind, Older, Child, Newer, OlderAgain)]
    for start in range(0, 70, 7):
        images, embeddings = numbered_images(start, 7), torch.randn(7, 4, generator=generator)
        for memory in memories:
            memory.insert(images, embeddings, embed=lambda some: some.flatten(1)[:, :4].float())
    plain, *others = [memory.state_dict()["ids"].tolist() for memory in memories]
    assert others == [plain] * 4


def test_a_buffer_of_the_earlier_release_keeps_its_slots() -> None:
    with pytest.warns(DeprecationWarning, match="requires it"):

        class LastSlotMemory(FlatMemory):
            def _slots(self, images: torch.Tensor, embed: Any) -> list[int]:  # type: ignore[override]
                return [min(len(self) + row, self.capacity - 1) for row in range(len(images))]

    memory = LastSlotMemory(3, IMAGE_SHAPE, 1)
    memory.insert(numbered_images(0, 5))
    assert memory.state_dict()["ids"].tolist() == [0, 1, 4]
