"""Flat memories that store one embedding per image, which replays move."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from traffic import IMAGE_SHAPE, numbered_images, numbers_of

from climb.errors import InputError
from climb.memory import FifoMemory, ReservoirMemory
from climb.testing import check_memory

Flat = type[FifoMemory | ReservoirMemory]
both = pytest.mark.parametrize("kind", [FifoMemory, ReservoirMemory])


def told(first: int, count: int, dim: int = 3) -> torch.Tensor:
    """float32 (count, dim): embeddings that carry the number of their image."""
    return torch.arange(first, first + count).float()[:, None] + torch.arange(dim) / 10


def stored(memory: FifoMemory | ReservoirMemory) -> dict[int, list[float]]:
    """Everything kept: embedding by image id."""
    batch = memory.sample(len(memory))
    assert batch is not None
    assert batch.embeddings is not None
    return dict(zip(batch.ids.tolist(), batch.embeddings.tolist(), strict=True))


@both
def test_without_a_rate_no_embedding_is_stored(kind: Flat) -> None:
    memory = kind(4, IMAGE_SHAPE, 3)
    memory.insert(numbered_images(0, 4), told(0, 4))
    batch = memory.sample(4)
    assert batch is not None
    assert batch.embeddings is None
    assert memory.space is None
    assert memory.nbytes == 4 * 48
    assert "embeddings" not in memory.state_dict()


@both
def test_a_rate_sets_the_space_of_that_instance_only(kind: Flat) -> None:
    memory = kind(4, IMAGE_SHAPE, 3, embedding_rate=0.5)
    assert memory.space == "projector"
    assert memory.nbytes == 4 * (48 + 3 * 4)
    assert kind.space is None
    assert kind(4, IMAGE_SHAPE, 3).space is None


@both
@pytest.mark.parametrize("batch", [1, 7, 30])
def test_each_embedding_stays_with_its_image(kind: Flat, batch: int) -> None:
    memory = kind(11, IMAGE_SHAPE, 3, embedding_rate=0.5)
    for first in range(0, 120, batch):
        memory.insert(numbered_images(first, batch), told(first, batch))
        drawn = memory.sample(min(len(memory), 8))
        assert drawn is not None
        assert drawn.embeddings is not None
        assert numbers_of(drawn.images) == drawn.ids.tolist()
        expected = torch.cat([told(image, 1) for image in drawn.ids.tolist()])
        torch.testing.assert_close(drawn.embeddings, expected)


@both
def test_storing_embeddings_changes_neither_content_nor_draws(kind: Flat) -> None:
    plain, keeping = kind(9, IMAGE_SHAPE, 3, seed=5), kind(9, IMAGE_SHAPE, 3, embedding_rate=0.5, seed=5)
    for first in range(0, 80, 4):
        reports = [memory.insert(numbered_images(first, 4), told(first, 4)) for memory in (plain, keeping)]
        assert reports[0] == reports[1]
        draws = [memory.sample(4) for memory in (plain, keeping)]
        assert draws[0] is not None
        assert draws[1] is not None
        assert torch.equal(draws[0].ids, draws[1].ids)


def test_the_target_is_the_running_average_of_embeddings() -> None:
    memory = FifoMemory(3, IMAGE_SHAPE, 2, embedding_rate=0.25)
    memory.insert(numbered_images(0, 2), torch.tensor([[0.0, 8.0], [1.0, 1.0]]))
    memory.refresh(torch.tensor([0]), torch.tensor([[4.0, 0.0]]))
    assert stored(memory)[0] == [1.0, 6.0]  # 0.75 * (0, 8) + 0.25 * (4, 0)
    memory.refresh(torch.tensor([0]), torch.tensor([[5.0, 2.0]]))
    assert stored(memory) == {0: [2.0, 5.0], 1: [1.0, 1.0]}


@pytest.mark.parametrize(("rate", "expected"), [(0.0, [2.0, 0.0]), (0.5, [1.0, 2.0]), (1.0, [0.0, 4.0])])
def test_the_rate_goes_from_the_first_embedding_to_the_last(rate: float, expected: list[float]) -> None:
    memory = FifoMemory(1, IMAGE_SHAPE, 2, embedding_rate=rate)
    memory.insert(numbered_images(0, 1), torch.tensor([[2.0, 0.0]]))
    memory.refresh(torch.tensor([0]), torch.tensor([[0.0, 4.0]]))
    assert stored(memory)[0] == expected


@both
def test_refresh_goes_by_id_and_ignores_stale_ids(kind: Flat) -> None:
    memory = kind(5, IMAGE_SHAPE, 3, embedding_rate=0.5, seed=1)
    memory.insert(numbered_images(0, 40), told(0, 40))
    before = stored(memory)
    gone = [image for image in range(40) if image not in before]
    kept = sorted(before, reverse=True)
    ids = torch.tensor([gone[0], kept[2], gone[-1], -1, kept[0], 2**40])
    memory.refresh(ids, torch.full((6, 3), 100.0))
    after = stored(memory)
    assert sorted(after) == sorted(before)
    for image, value in before.items():
        moved = image in (kept[0], kept[2])
        assert after[image] == pytest.approx([x / 2 + 50 for x in value] if moved else value)


def test_the_last_embedding_of_a_repeated_id_counts() -> None:
    memory = FifoMemory(2, IMAGE_SHAPE, 1, embedding_rate=0.5)
    memory.insert(numbered_images(0, 1), torch.tensor([[0.0]]))
    memory.refresh(torch.tensor([0, 0]), torch.tensor([[2.0], [8.0]]))
    assert stored(memory) == {0: [4.0]}


def test_stored_embeddings_are_detached_float32() -> None:
    memory = FifoMemory(2, IMAGE_SHAPE, 3, embedding_rate=0.5)
    memory.insert(numbered_images(0, 2), told(0, 2).bfloat16().requires_grad_())
    memory.refresh(torch.tensor([1]), told(0, 1).double().requires_grad_())
    batch = memory.sample(2)
    assert batch is not None
    assert batch.embeddings is not None
    assert batch.embeddings.dtype == torch.float32
    assert not batch.embeddings.requires_grad


@both
def test_state_carries_the_embeddings(kind: Flat) -> None:
    memory = kind(5, IMAGE_SHAPE, 3, embedding_rate=0.5)
    memory.insert(numbered_images(0, 23), told(0, 23))
    state = memory.state_dict()
    copy = kind(5, IMAGE_SHAPE, 3, embedding_rate=0.5, seed=9)
    copy.load_state_dict(state)
    memory.refresh(torch.arange(23), torch.zeros(23, 3))
    copy.refresh(torch.arange(23), torch.zeros(23, 3))
    assert stored(copy) == stored(memory)
    with pytest.raises(InputError, match=r"embedding of length 7 per image.*embeddings of shape \(5, 3\)"):
        kind(5, IMAGE_SHAPE, 7, embedding_rate=0.5).load_state_dict(state)
    plain = kind(5, IMAGE_SHAPE, 3)
    plain.insert(numbered_images(0, 2))
    with pytest.raises(InputError, match="has 2 images and no embeddings"):
        copy.load_state_dict(plain.state_dict())


@both
@pytest.mark.parametrize("rate", [-0.1, 1.5])
def test_an_impossible_rate_is_rejected(kind: Flat, rate: float) -> None:
    with pytest.raises(InputError, match=rf"embedding_rate must be None or in 0\.\.1; given {rate}"):
        kind(5, IMAGE_SHAPE, 3, embedding_rate=rate)


@both
@pytest.mark.parametrize("embeddings", [None, torch.zeros(2, 4), torch.zeros(3, 3)])
def test_embeddings_of_another_shape_are_rejected(kind: Flat, embeddings: Any) -> None:
    memory = kind(5, IMAGE_SHAPE, 3, embedding_rate=0.5)
    with pytest.raises(InputError, match=r"embeddings must have shape \(2, 3\)"):
        memory.insert(numbered_images(0, 2), embeddings)
    assert len(memory) == 0


@both
def test_satisfies_the_contract(kind: Flat) -> None:
    check_memory(lambda seed: kind(25, IMAGE_SHAPE, 6, embedding_rate=0.5, seed=seed))
