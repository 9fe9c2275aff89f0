"""MinRed's memory: worked examples, a plain re-implementation, and the number of matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from traffic import IMAGE_SHAPE, drifting_clusters, numbered_images, numbers_of

from climb.errors import ClimbError, InputError
from climb.memory import InsertReport
from climb.memory.minred import MinRedMemory
from climb.testing import check_memory


def directions(*degrees: float, length: float = 1.0) -> torch.Tensor:
    """float32 (n, 2): vectors at these angles."""
    angles = torch.tensor(degrees).deg2rad()
    return length * torch.stack([angles.cos(), angles.sin()], dim=1)


def ids_of(memory: MinRedMemory) -> list[int]:
    batch = memory.sample(len(memory))
    assert batch is not None
    assert numbers_of(batch.images) == batch.ids.tolist()
    return sorted(batch.ids.tolist())


def embeddings_of(memory: MinRedMemory) -> dict[int, torch.Tensor]:
    batch = memory.sample(len(memory))
    assert batch is not None
    assert batch.embeddings is not None
    return dict(zip(batch.ids.tolist(), batch.embeddings, strict=True))


class Restatement:
    """Image id -> unit vector, float64; every cosine computed again for every eviction."""

    def __init__(self, capacity: int, rate: float) -> None:
        self.capacity, self.rate, self.seen = capacity, rate, 0
        self.kept: dict[int, np.ndarray] = {}

    def insert(self, embeddings: np.ndarray) -> None:
        new = {}
        for z in embeddings.astype(np.float64):
            if len(self.kept) + len(new) == self.capacity:
                if len(self.kept) >= 2:
                    pairs = [(a, b) for a in self.kept for b in self.kept if a < b]
                    older, _ = max(pairs, key=lambda pair: float(self.kept[pair[0]] @ self.kept[pair[1]]))
                    del self.kept[older]
                elif self.kept:
                    self.kept.clear()
                else:
                    del new[min(new)]
            new[self.seen] = z / np.linalg.norm(z)
            self.seen += 1
        self.kept |= new

    def refresh(self, ids: list[int], embeddings: np.ndarray) -> None:
        for image, z in zip(ids, embeddings.astype(np.float64), strict=True):
            average = (1 - self.rate) * self.kept[image] + self.rate * z / np.linalg.norm(z)
            self.kept[image] = average / np.linalg.norm(average)


def test_the_older_of_the_closest_pair_is_removed_repeatedly() -> None:
    memory = MinRedMemory(4, IMAGE_SHAPE, 2)
    assert memory.insert(numbered_images(0, 4), directions(0, 90, 97, 180)) == InsertReport(novel=4)
    # 90 and 97 degrees are closest: image 1 goes. Of 0, 97, 180 the closest are 97 and 180: image 2 goes.
    assert memory.insert(numbered_images(4, 2), directions(270, 315)) == InsertReport(replaced=2)
    assert ids_of(memory) == [0, 3, 4, 5]
    # 270 and 315 are closest now: image 4 goes.
    memory.insert(numbered_images(6, 1), directions(45))
    assert ids_of(memory) == [0, 3, 5, 6]


def test_age_does_not_depend_on_the_slot() -> None:
    memory = MinRedMemory(3, IMAGE_SHAPE, 2)
    memory.insert(numbered_images(0, 3), directions(0, 1, 180))
    memory.insert(numbered_images(3, 1), directions(185))  # takes the first slot, of image 0
    assert ids_of(memory) == [1, 2, 3]
    memory.insert(numbered_images(4, 1), directions(90))  # 2 and 3 are closest; 3 is in the slot before that of 2
    assert ids_of(memory) == [1, 3, 4]


def test_new_images_are_not_compared() -> None:
    memory = MinRedMemory(4, IMAGE_SHAPE, 2)
    memory.insert(numbered_images(0, 4), directions(0, 60, 180, 270))
    memory.insert(numbered_images(4, 1), directions(180))  # the twin of 2; yet 0 and 60 degrees are the closest pair
    assert ids_of(memory) == [1, 2, 3, 4]
    # Now 4 was here before, and of the twins the older goes; of 60, 270 and 180 degrees the last two are closest.
    memory.insert(numbered_images(5, 2), directions(20, 20))
    assert ids_of(memory) == [1, 4, 5, 6]


def test_images_that_fill_the_last_slots_are_not_compared() -> None:
    memory = MinRedMemory(5, IMAGE_SHAPE, 2)
    memory.insert(numbered_images(0, 3), directions(0, 40, 180))
    report = memory.insert(numbered_images(3, 3), directions(270, 270, 270))
    assert report == InsertReport(novel=2, replaced=1)
    assert ids_of(memory) == [1, 2, 3, 4, 5]


def test_a_mini_batch_one_below_capacity_leaves_the_newer_of_the_last_pair() -> None:
    memory = MinRedMemory(3, IMAGE_SHAPE, 2)
    memory.insert(numbered_images(0, 3), directions(0, 90, 100))
    memory.insert(numbered_images(3, 1), directions(210))  # in the place of image 1, before image 2
    memory.insert(numbered_images(4, 2), directions(0, 90))  # image 0 goes, then the older of 2 and 3
    assert ids_of(memory) == [3, 4, 5]


def test_without_a_pair_the_oldest_is_removed() -> None:
    memory = MinRedMemory(3, IMAGE_SHAPE, 2)
    memory.insert(numbered_images(0, 8), directions(*range(8)))
    assert ids_of(memory) == [5, 6, 7]
    memory.insert(numbered_images(8, 3), directions(1, 2, 3))
    assert ids_of(memory) == [8, 9, 10]
    memory.insert(numbered_images(11, 7), directions(*range(7)))
    assert ids_of(memory) == [15, 16, 17]


def test_a_memory_of_one_image_keeps_the_last() -> None:
    memory = MinRedMemory(1, IMAGE_SHAPE, 2)
    for first in (0, 2, 4):
        memory.insert(numbered_images(first, 2), directions(0, 90))
        assert ids_of(memory) == [first + 1]


def test_embeddings_are_running_averages_of_unit_vectors() -> None:
    memory = MinRedMemory(2, IMAGE_SHAPE, 2, embedding_rate=0.5)
    memory.insert(numbered_images(0, 2), directions(0, 90, length=7.0))
    torch.testing.assert_close(embeddings_of(memory)[0], directions(0)[0])
    # Half way between two directions, however long the vectors are.
    memory.refresh(torch.tensor([0]), directions(60, length=100.0))
    torch.testing.assert_close(embeddings_of(memory)[0], directions(30)[0])
    torch.testing.assert_close(embeddings_of(memory)[1], directions(90)[0])


def test_replay_changes_redundancy() -> None:
    memory = MinRedMemory(4, IMAGE_SHAPE, 2, embedding_rate=1.0)
    memory.insert(numbered_images(0, 4), directions(0, 10, 120, 240))
    memory.insert(numbered_images(4, 1), directions(60))  # evicts 0, and the similarities are there from now on
    assert ids_of(memory) == [1, 2, 3, 4]
    memory.refresh(torch.tensor([3, 77]), directions(125, 60))  # the network now sees 2 and 3 alike
    memory.insert(numbered_images(5, 1), directions(300))
    assert ids_of(memory) == [1, 3, 4, 5]


@pytest.mark.parametrize("rate", [0.5, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_the_reimplementation(seed: int, rate: float) -> None:
    rng = np.random.default_rng(seed)
    embeddings = drifting_clusters(400, 8, clusters=10, spread=0.4, seed=seed)
    ours, theirs = MinRedMemory(23, IMAGE_SHAPE, 8, embedding_rate=rate, seed=seed), Restatement(23, rate)
    start = 0
    while start < len(embeddings):
        # Now and then a mini-batch that is larger than the memory.
        size = 30 if rng.random() < 0.05 else int(rng.integers(1, 13))
        batch = embeddings[start : start + size]
        ours.insert(numbered_images(start, len(batch)), torch.from_numpy(batch))
        theirs.insert(batch)
        start += len(batch)
        assert ids_of(ours) == sorted(theirs.kept)
        for _ in range(3):
            drawn = ours.sample(min(len(ours), 9))
            assert drawn is not None
            views = rng.standard_normal((len(drawn.ids), 8)).astype(np.float32) + 2 * embeddings[drawn.ids]
            ours.refresh(drawn.ids, torch.from_numpy(views))
            theirs.refresh(drawn.ids.tolist(), views)
    for image, value in embeddings_of(ours).items():
        np.testing.assert_allclose(value.numpy(), theirs.kept[image], atol=1e-5)


class Products(TorchDispatchMode):
    """Shapes of the matrix products inside, and how often a number was read from the device."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []
        self.reads = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default:
            self.shapes.append((*args[0].shape, args[1].shape[1]))
        self.reads += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


def test_one_small_matrix_product_serves_all_evictions_of_a_mini_batch() -> None:
    memory = MinRedMemory(50, IMAGE_SHAPE, 8)
    rows = torch.from_numpy(drifting_clusters(100, 8))
    memory.insert(numbered_images(0, 50), rows[:50])
    memory.insert(numbered_images(50, 10), rows[50:60])
    drawn = memory.sample(12)
    assert drawn is not None
    memory.refresh(drawn.ids, rows[:12])
    changed = len(set(drawn.ids.tolist()) | set(range(50, 60)))
    with Products() as products:
        memory.insert(numbered_images(60, 10), rows[60:70])
    assert products.shapes == [(changed, 8, 50)]
    assert products.reads == 0


def test_nothing_is_compared_before_the_memory_is_full() -> None:
    memory = MinRedMemory(50, IMAGE_SHAPE, 8)
    with Products() as products:
        memory.insert(numbered_images(0, 50), torch.from_numpy(drifting_clusters(50, 8)))
    assert products.shapes == []


def test_zero_embeddings_are_similar_to_none() -> None:
    memory = MinRedMemory(4, IMAGE_SHAPE, 2)
    memory.insert(numbered_images(0, 4), torch.cat([torch.zeros(2, 2), directions(10, 20)]))
    memory.insert(numbered_images(4, 1), directions(200))
    assert ids_of(memory) == [0, 1, 3, 4]


@pytest.mark.parametrize("poison", [math.nan, math.inf])
@pytest.mark.parametrize("stored", [1, 2, 3])
def test_a_mini_batch_of_a_diverged_network_is_refused_and_the_next_is_stored(poison: float, stored: int) -> None:
    memory = MinRedMemory(3, IMAGE_SHAPE, 2)
    memory.insert(numbered_images(0, stored), directions(*range(0, 60 * stored, 60)))
    bad = directions(45, 90)
    bad[1, 0] = poison
    with pytest.raises(ClimbError, match="training has diverged"):
        memory.insert(numbered_images(3, 2), bad)
    assert ids_of(memory) == list(range(stored))
    for number in range(4):
        memory.insert(numbered_images(number, 1), directions(100 + 10 * number))
    assert len(memory) == 3


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_replay_of_a_diverged_network_leaves_embeddings_as_they_are(poison: float) -> None:
    memory = MinRedMemory(3, IMAGE_SHAPE, 2)
    memory.insert(numbered_images(0, 3), directions(0, 90, 180))
    before = memory.state_dict()["embeddings"]
    memory.refresh(torch.tensor([0, 1]), torch.tensor([[poison, 1.0], [1.0, 0.0]]))
    after = memory.state_dict()["embeddings"]
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert not torch.equal(after[1], before[1])
    memory.insert(numbered_images(3, 1), directions(45))
    assert len(memory) == 3


def test_loading_clears_outdated_rows() -> None:
    """These may be slots that the loaded memory has not filled."""
    young, used = MinRedMemory(5, IMAGE_SHAPE, 2), MinRedMemory(5, IMAGE_SHAPE, 2)
    young.insert(numbered_images(0, 2), directions(0, 90))
    used.insert(numbered_images(0, 5), directions(0, 10, 20, 30, 40))  # not compared yet
    used.load_state_dict(young.state_dict())
    for memory in (young, used):
        memory.insert(numbered_images(2, 4), directions(180, 200, 220, 240))
    assert ids_of(young) == ids_of(used) == [1, 2, 3, 4, 5]


def test_bytes_count_images_embeddings_and_similarities() -> None:
    assert MinRedMemory(10, IMAGE_SHAPE, 6).nbytes == 10 * 48 + 10 * 6 * 4 + 10 * 10 * 4


def test_the_method_inserts_before_the_passes_and_the_ablation_after() -> None:
    assert MinRedMemory(3, IMAGE_SHAPE, 2).inserts == "before"
    assert MinRedMemory(3, IMAGE_SHAPE, 2, inserts="after").inserts == "after"
    assert MinRedMemory(3, IMAGE_SHAPE, 2).space == "projector"
    with pytest.raises(InputError, match="during"):
        MinRedMemory(3, IMAGE_SHAPE, 2, inserts="during")  # type: ignore[arg-type]


def test_embeddings_are_required() -> None:
    with pytest.raises(InputError, match=r"embeddings must have shape \(1, 2\); given None"):
        MinRedMemory(3, IMAGE_SHAPE, 2).insert(numbered_images(0, 1))


@pytest.mark.parametrize("inserts", ["before", "after"])
@pytest.mark.parametrize("seed", [0, 7])
def test_satisfies_the_contract(seed: int, inserts: Any) -> None:
    check_memory(lambda seed: MinRedMemory(25, IMAGE_SHAPE, 6, inserts=inserts, seed=seed), seed=seed)
