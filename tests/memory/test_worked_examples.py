"""Algorithm 1 by hand: two-dimensional embeddings, a handful of images, every number worked out on paper."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from traffic import IMAGE_SHAPE, numbered_images, numbers_of

from climb.memory import CentroidMemory, InsertReport


def direction(degrees: float, length: float = 1.0) -> list[float]:
    return [length * math.cos(math.radians(degrees)), length * math.sin(math.radians(degrees))]


def small_memory(capacity: int = 20, **options: Any) -> CentroidMemory:
    sizes: dict[str, Any] = {"stm_centroids": 2, "ltm_centroids": 1, "images_per_centroid": 3, "window": 4}
    return CentroidMemory(capacity, IMAGE_SHAPE, 2, **{**sizes, "novelty_percentile": 1.0, **options})


class Feeder:
    """Gives a memory embeddings one by one, with images numbered as they come."""

    def __init__(self, memory: CentroidMemory) -> None:
        self.memory = memory
        self.given = 0

    def __call__(self, *embeddings: list[float]) -> list[InsertReport]:
        reports = []
        for embedding in embeddings:
            reports.append(self.memory.insert(numbered_images(self.given, 1), torch.tensor([embedding])))
            self.given += 1
        return reports


def test_every_image_is_novel_until_the_short_term_memory_has_been_full() -> None:
    memory = small_memory(stm_centroids=3)
    reports = Feeder(memory)(direction(0), direction(0), direction(1))
    assert [report.novel for report in reports] == [1, 1, 1]
    assert memory.stm.ids == [[0], [1], [2]]
    assert memory.events() == [(0, "created", 0), (1, "created", 1), (2, "created", 2)]


def test_threshold_is_nan_until_the_first_distance_and_then_their_quantile() -> None:
    memory = small_memory(stm_centroids=3, novelty_percentile=0.5)
    feed = Feeder(memory)
    assert math.isnan(memory.threshold)
    feed(direction(0))
    assert math.isnan(memory.threshold)  # the first image has no distance
    feed(direction(90))
    assert memory.threshold == pytest.approx(1.0)
    feed(direction(60))  # nearest is 90 degrees, 30 away
    assert memory.threshold == pytest.approx((1.0 + 1 - math.cos(math.radians(30))) / 2)


def test_an_image_beyond_the_threshold_is_novel_and_one_at_it_is_not() -> None:
    memory = small_memory()
    feed = Feeder(memory)
    feed([1.0, 0.0], [0.0, 1.0])  # window [1.0], threshold 1.0
    (at,) = feed([0.0, 0.0])  # a zero vector: distance exactly 1, which is not above 1
    assert (at.novel, at.joined) == (0, 1)
    (beyond,) = feed(direction(225))
    assert (beyond.novel, beyond.evicted) == (1, 1)


def test_an_image_that_joins_moves_its_centroid_by_the_rate_without_normalising() -> None:
    memory = small_memory(stm_rate=0.25)
    feed = Feeder(memory)
    feed([4.0, 0.0], [0.0, 4.0])
    (report,) = feed([2.0, 0.4])
    assert report == InsertReport(joined=1)
    assert memory.stm.values.tolist() == [pytest.approx([3.5, 0.1]), pytest.approx([0.0, 4.0])]
    assert memory.stm.ids == [[0, 2], [1]]
    assert memory.stm.updated.tolist() == [2, 1]


def test_a_centroid_that_fills_up_is_promoted_and_leaves_its_slot() -> None:
    memory = small_memory()
    feed = Feeder(memory)
    feed(direction(0), direction(90), direction(1))
    (report,) = feed(direction(2))
    assert report == InsertReport(joined=1, promoted=1)
    assert memory.stm.ids == [[1]]
    assert memory.ltm.ids == [[0, 2, 3]]
    assert memory.ltm.centroids.tolist() == [0]
    assert memory.events()[-1] == (3, "promoted", 0)


def test_a_slot_freed_by_promotion_waits_for_a_truly_novel_image() -> None:
    memory = small_memory()
    feed = Feeder(memory)
    feed(direction(0), direction(90), direction(1), direction(2))
    (report,) = feed(direction(89))
    assert report == InsertReport(joined=1)
    assert memory.stm.ids == [[1, 4]]


def test_long_term_images_are_replaced_in_place_and_the_value_stays() -> None:
    memory = small_memory(ltm_accept=1.0)
    feed = Feeder(memory)
    feed(direction(0), direction(90), direction(1), direction(2))
    value = memory.ltm.values.clone()
    (report,) = feed(direction(-3))
    assert report == InsertReport(replaced=1)
    (ids,) = memory.ltm.ids
    assert len(ids) == 3
    assert 4 in ids
    assert sum(one == other for one, other in zip(ids, [0, 2, 3], strict=True)) == 2
    assert torch.equal(memory.ltm.values, value)
    assert memory.ltm.updated.tolist() == [4]


def test_long_term_images_are_never_replaced_when_none_is_accepted() -> None:
    memory = small_memory(ltm_accept=0.0)
    feed = Feeder(memory)
    feed(direction(0), direction(90), direction(1), direction(2))
    assert feed(direction(-3)) == [InsertReport(rejected=1)]
    assert memory.ltm.ids == [[0, 2, 3]]
    assert memory.ltm.updated.tolist() == [3]


def test_the_two_closest_long_term_centroids_merge_into_the_older_with_the_mean_of_both() -> None:
    memory = small_memory(images_per_centroid=2, stm_rate=0.5)
    feed = Feeder(memory)
    feed([4.0, 0.0], [0.0, 2.0])
    feed([2.0, 0.0])  # promotes centroid 0 with value (3, 0)
    (report,) = feed([0.0, 4.0])  # promotes centroid 1 with value (0, 3): one too many
    assert report == InsertReport(joined=1, promoted=1, merged=1)
    assert memory.ltm.centroids.tolist() == [0]
    assert memory.ltm.values.tolist() == [pytest.approx([1.5, 1.5])]
    assert memory.ltm.updated.tolist() == [3]
    (ids,) = memory.ltm.ids
    pool = [0, 2, 1, 3]
    assert ids == [image for image in pool if image in ids]
    assert len(ids) == 2
    assert len(memory.stm.ids) == 0
    assert memory.events()[-2:] == [(3, "promoted", 1), (3, "merged", 1)]


def test_the_least_recently_updated_centroid_is_evicted_regardless_of_replay() -> None:
    memory = small_memory(novelty_percentile=0.0)
    feed = Feeder(memory)
    feed([1.0, 0.0], [0.0, 1.0])  # threshold is the smallest distance so far
    feed([2.0, 0.0])  # distance 0 to centroid 0, which is now the more recent one
    assert memory.stm.ids == [[0, 2], [1]]
    memory.refresh(torch.tensor([1]), torch.tensor([[0.0, 1.0]]))
    (report,) = feed([-1.0, 0.0])
    assert report == InsertReport(novel=1, evicted=1)
    assert memory.stm.ids == [[0, 2], [3]]
    assert memory.events()[-2:] == [(3, "evicted", 1), (3, "created", 2)]


def three_centroids(prune: str) -> tuple[CentroidMemory, Feeder]:
    """Seven images, as many as there is room for, in [0, 3, 6], [1, 4] and [2, 5]; nothing more is novel."""
    memory = small_memory(7, stm_centroids=3, images_per_centroid=4, window=100, prune=prune)
    feed = Feeder(memory)
    feed([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0])
    feed(direction(1), direction(91), direction(181), direction(2))
    assert memory.stm.ids == [[0, 3, 6], [1, 4], [2, 5]]
    return memory, feed


def test_anchor_pruning_keeps_the_first_image_of_each_short_term_centroid() -> None:
    memory, feed = three_centroids("anchor")
    values = memory.stm.values
    (report,) = feed(direction(92))
    assert report == InsertReport(joined=1, pruned=1)
    assert memory.stm.ids == [[0], [1], [2]]
    assert memory.events()[-1] == (7, "pruned", -1)
    assert torch.equal(memory.stm.values[[0, 2]], values[[0, 2]])  # only images go; the values stay


def test_selective_pruning_takes_the_newest_image_of_the_least_recent_centroid_first() -> None:
    memory, feed = three_centroids("selective")
    (report,) = feed(direction(92))
    assert report == InsertReport(joined=1, pruned=1)
    assert memory.stm.ids == [[0, 3, 6], [1, 4, 7], [2]]
    assert memory.events()[-1] == (7, "pruned", 2)


def test_selective_pruning_takes_the_anchor_last_and_its_centroid_with_it() -> None:
    memory, feed = three_centroids("selective")
    feed(direction(92))
    (report,) = feed(direction(91))  # completes centroid 1, which is promoted: it cannot be pruned any more
    assert report == InsertReport(joined=1, promoted=1, pruned=1, evicted=1)
    assert memory.ltm.ids == [[1, 4, 7, 8]]
    assert memory.stm.ids == [[0, 3, 6]]
    assert memory.events()[-3:] == [(8, "promoted", 1), (8, "pruned", 2), (8, "evicted", 2)]


def test_replay_pulls_each_centroid_toward_its_own_images_in_closed_form() -> None:
    memory = small_memory()
    feed = Feeder(memory)
    feed([4.0, 0.0], [0.0, 4.0], [4.0, 0.0])
    assert memory.stm.ids == [[0, 2], [1]]
    # Centroid 0 holds two images: each pulls by 1/4. Centroid 1 holds one: it pulls by 1/2.
    ids = torch.tensor([1, 2, 99, 0])
    memory.refresh(ids, torch.tensor([[2.0, 4.0], [0.0, 4.0], [9.0, 9.0], [4.0, 8.0]]))
    assert memory.stm.values.tolist() == [
        pytest.approx([0.5 * 4 + 0.25 * (0 + 4), 0.25 * (4 + 8)]),
        pytest.approx([1.0, 4.0]),
    ]


def test_half_of_a_sample_is_long_term_and_the_other_side_fills_when_one_is_short() -> None:
    memory = small_memory()
    feed = Feeder(memory)
    feed(direction(0), direction(90), direction(1), direction(2), direction(91))
    assert (memory.ltm.ids, memory.stm.ids) == ([[0, 2, 3]], [[1, 4]])
    for n, long_term in ((1, 0), (2, 1), (3, 1), (4, 2), (5, 3)):
        for _ in range(10):
            batch = memory.sample(n)
            assert batch is not None
            ids = batch.ids.tolist()
            assert len(set(ids)) == n
            assert len({0, 2, 3} & set(ids)) == long_term
            assert numbers_of(batch.images) == ids
    assert memory.sample(6) is None


def test_a_sample_of_one_side_is_uniform_over_images_not_over_centroids() -> None:
    memory = small_memory(images_per_centroid=5)
    feed = Feeder(memory)
    feed(direction(0), direction(90), direction(1), direction(2), direction(3))
    assert memory.stm.ids == [[0, 2, 3, 4], [1]]
    draws = [memory.sample(1) for _ in range(1000)]
    share = sum(batch is not None and batch.ids.item() == 1 for batch in draws) / 1000
    assert share == pytest.approx(1 / 5, abs=0.05)
