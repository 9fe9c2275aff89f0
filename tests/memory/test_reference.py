"""Each fault of the released memory, shown; where it helps, beside the memory that does not have it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from traffic import IMAGE_SHAPE, drifting_clusters, numbered_images, numbers_of

from climb.contrib.released import ReferenceMemory
from climb.errors import InputError
from climb.memory import CentroidMemory

DIM = 8
AXES = torch.eye(DIM)


def small(kind: Any = ReferenceMemory, capacity: int = 60, **options: Any) -> Any:
    """Four short-term and two long-term centroids of three images; nothing is novel once the memory has filled."""
    sizes = {"stm_centroids": 4, "ltm_centroids": 2, "images_per_centroid": 3, "window": 40}
    return kind(capacity, IMAGE_SHAPE, DIM, **{**sizes, "novelty_percentile": 1.0, **options})


class Feeder:
    """Feeds one embedding at a time, with images numbered in order."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.given = 0

    def __call__(self, *embeddings: torch.Tensor, embed: Any = None) -> list[Any]:
        reports = []
        for embedding in embeddings:
            image = numbered_images(self.given, 1)
            reports.append(self.memory.insert(image, embedding[None], embed=embed))
            self.given += 1
        return reports


def ready(**options: Any) -> tuple[ReferenceMemory, Feeder]:
    """A memory whose four slots hold the first four axes and whose threshold is a number, 1."""
    memory = small(**options)
    feed = Feeder(memory)
    feed(*AXES[:4])
    # At distance 1 from everything, and dropped; enough of them push every nan out of the window.
    feed(*[AXES[7]] * 4)
    assert memory.threshold == pytest.approx(1.0)
    assert memory.stm.ids == [[0], [1], [2], [3]]
    return memory, feed


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.nn.functional.cosine_similarity(a, b, dim=0))


def test_ninety_six_images_are_dropped_after_the_fill() -> None:
    embeddings = torch.from_numpy(drifting_clusters(220, 64, clusters=30, seed=1))
    memory = ReferenceMemory(2500, IMAGE_SHAPE, 64)
    filled = memory.insert(numbered_images(0, 100), embeddings[:100])
    assert filled.novel == 100
    dropped = memory.insert(numbered_images(100, 96), embeddings[100:196])
    assert dropped.rejected == 96
    assert not math.isnan(memory.threshold)
    assert memory.insert(numbered_images(196, 24), embeddings[196:]).rejected == 0
    # The memory of the paper drops nothing.
    right = CentroidMemory(2500, IMAGE_SHAPE, 64)
    assert right.insert(numbered_images(0, 220), embeddings).rejected == 0


def test_the_window_spans_a_tenth_of_its_images() -> None:
    memory, feed = ready()
    feed(*[AXES[0] + 0.1 * AXES[1]] * 2, *[AXES[1] + 0.1 * AXES[2]] * 2)
    # Four images fill a window of forty: the distances of 1 seen just before are gone.
    assert memory.threshold < 0.1


def test_a_promoted_centroid_stays_and_its_anchor_is_stored_twice() -> None:
    memory, feed = ready()
    before = len(memory)
    (*_, report) = feed(*[AXES[1]] * 3)
    assert report.promoted == 1
    assert len(memory.stm.ids) == 4
    assert memory.ltm.ids == [[1, 8, 9]]
    (copy,) = memory.stm.ids[1]
    assert copy < 0
    assert len(memory) == before + 2 + 1  # two images joined, the third match was lost at the cap, one is a copy
    batch = memory.sample(len(memory))
    assert batch is not None
    assert sorted(numbers_of(batch.images)) == [0, 1, 1, 2, 3, 8, 9]


def test_promotion_counts_matches_that_start_at_zero_or_one() -> None:
    _, feed = ready()
    reports = feed(AXES[1], AXES[1], AXES[1])
    # Created while filling: three matches, so a fourth image that finds no room.
    assert [(r.joined, r.rejected, r.promoted) for r in reports] == [(1, 0, 0), (1, 0, 0), (0, 1, 1)]
    _, feed = ready()
    (novel,) = feed(-torch.ones(DIM))
    assert novel.novel == 1
    reports = feed(-torch.ones(DIM), -torch.ones(DIM))
    # Created later: two matches do, and no image is lost.
    assert [(r.joined, r.rejected, r.promoted) for r in reports] == [(1, 0, 0), (1, 0, 1)]


def test_nothing_joins_the_short_term_memory_while_slot_zero_is_transferred() -> None:
    memory, feed = ready()
    feed(*[AXES[0]] * 3)
    assert memory.ltm.ids == [[0, 8, 9]]
    (report,) = feed(AXES[2])  # nearest to slot 2, which was never transferred
    assert report.rejected == 1
    assert memory.stm.ids[2] == [2]


def test_another_transferred_slot_goes_on_and_is_promoted_again() -> None:
    memory, feed = ready()
    feed(*[AXES[1]] * 3)
    reports = feed(*[AXES[1]] * 4)
    # One match more than the first time, since the mark of transfer is -1.
    assert [report.promoted for report in reports] == [0, 0, 0, 1]
    values = memory.ltm.values
    assert len(values) == 2
    assert cosine(values[0], values[1]) == pytest.approx(1.0)


def test_pruning_waits_for_the_end_of_the_mini_batch_and_starts_at_the_bound() -> None:
    def encode(images: torch.Tensor) -> torch.Tensor:
        return AXES[[number % 4 for number in numbers_of(images)]]

    over, _ = ready(capacity=10, images_per_centroid=3)
    together = over.insert(numbered_images(100, 8), AXES[[0, 1, 2, 3, 0, 1, 2, 3]], embed=encode)
    assert (together.joined, together.pruned) == (8, 1)  # twelve images were held in between
    at, feed = ready(capacity=10)
    reports = feed(*AXES[[0, 1, 2, 3, 0, 1]], embed=encode)
    assert [report.pruned for report in reports] == [0, 0, 0, 0, 0, 1]
    assert len(at) == 4
    assert not ReferenceMemory.bounded


def test_pruning_encodes_every_centroid_anew_and_resets_the_counters() -> None:
    encoded: list[list[int]] = []

    def encode(images: torch.Tensor) -> torch.Tensor:
        numbers = numbers_of(images)
        encoded.append(numbers)
        return torch.tensor([[float(number), 1.0, 0, 0, 0, 0, 0, 0] for number in numbers])

    memory, feed = ready(capacity=10)
    feed(AXES[1], AXES[1], AXES[2], AXES[2], AXES[3], AXES[3], embed=encode)
    assert encoded == [[0], [1, 8, 9], [2, 10, 11], [3, 12, 13]]
    assert memory.stm.values[:, 0].tolist() == [0.0, 6.0, pytest.approx(23 / 3), pytest.approx(28 / 3)]
    assert memory.stm.ids == [[0], [1], [2], [3]]
    assert {slot["matches"] for slot in memory.state_dict()["stm"]} == {0}


def test_pruning_without_an_encoder_is_refused() -> None:
    _, feed = ready(capacity=10)
    feed(*AXES[[0, 1, 2, 3, 0]])
    with pytest.raises(InputError, match=r"insert\(\.\.\., embed=encoder\)"):
        feed(AXES[1])


def two_long_term() -> tuple[ReferenceMemory, Feeder]:
    memory, feed = ready()
    feed(*[AXES[2]] * 3, *[AXES[3]] * 3)
    assert len(memory.ltm.ids) == 2
    return memory, feed


def test_refresh_swaps_the_rows_of_both_tiers() -> None:
    memory, _ = two_long_term()
    batch = memory.sample(8)
    assert batch is not None
    long_term = {image for ids in memory.ltm.ids for image in ids}
    assert [image in long_term for image in batch.ids.tolist()] == [True] * 4 + [False] * 4
    # Long-term rows carry one embedding, short-term rows another: each side ends nearer to the other's.
    rows = torch.cat([AXES[5].repeat(4, 1), AXES[6].repeat(4, 1)])
    memory.refresh(batch.ids, rows)
    drawn = [any(image in batch.ids.tolist() for image in ids) for ids in memory.stm.ids]
    assert any(drawn)
    for value, was_drawn in zip(memory.stm.values, drawn, strict=True):
        assert (float(value[5]) > 0) == was_drawn
        assert float(value[6]) == 0
    assert float(memory.ltm.values[:, 6].sum()) > 0
    assert float(memory.ltm.values[:, 5].sum()) == 0


def test_refresh_is_right_while_the_long_term_memory_is_empty() -> None:
    memory, _ = ready()
    memory.refresh(torch.tensor([2, 77, 0]), torch.stack([AXES[5], AXES[4], AXES[6]]))
    assert torch.equal(memory.stm.values[2], 0.5 * AXES[2] + 0.5 * AXES[5])
    assert torch.equal(memory.stm.values[0], 0.5 * AXES[0] + 0.5 * AXES[6])
    assert torch.equal(memory.stm.values[1], AXES[1])


def test_similarities_are_stale_when_it_merges() -> None:
    memory, feed = two_long_term()
    state = memory.state_dict()
    # As replay would: the two long-term centroids come to lie on each other after they were compared.
    state["ltm"][1]["value"] = state["ltm"][0]["value"] + 0.01 * AXES[6]
    memory.load_state_dict(state)
    tilted = AXES[1] + 0.5 * AXES[2]
    feed(*[tilted] * 3)
    # The newcomer has a little of the first in it, which is all the cache knows of: it merges with that one,
    # though the first two are now as good as equal.
    merged = [centroid for _, kind, centroid in memory.events() if kind == "merged"]
    assert len(merged) == 1
    values = memory.ltm.values
    assert len(values) == 2
    assert float(values[0][1]) > 0.3  # the first took the newcomer in
    assert float(values[1][1]) == 0  # the second, its near twin, is still there


def test_selective_pruning_never_empties_a_slot() -> None:
    memory, feed = ready(capacity=10, prune="selective")
    reports = feed(*AXES[[0, 1, 2, 3, 0, 1]])
    assert reports[-1].pruned == 1
    assert len(memory) == 9
    assert all(ids for ids in memory.stm.ids)
    assert memory.stm.ids[2] == [2]


@pytest.mark.parametrize("prune", ["anchor", "selective"])
def test_a_loaded_state_continues_exactly(prune: str) -> None:
    embeddings = torch.from_numpy(drifting_clusters(400, DIM, clusters=10, spread=0.35, seed=2))
    weights = torch.from_numpy(np.random.default_rng(0).standard_normal((48, DIM))).float()

    def encode(images: torch.Tensor) -> torch.Tensor:
        return images.reshape(len(images), -1).float() @ weights

    def advance(memory: ReferenceMemory, start: int) -> list[Any]:
        trace: list[Any] = []
        for first in range(start, start + 200, 10):
            rows = embeddings[first : first + 10]
            trace.append(memory.insert(numbered_images(first, 10), rows, embed=encode))
            batch = memory.sample(8)
            if batch is not None:
                trace.append(batch.ids.tolist())
                memory.refresh(batch.ids, torch.ones(8, DIM))
        trace.append(memory.stm.values.tolist())
        return trace

    options: dict[str, Any] = {"capacity": 10, "novelty_percentile": 0.9, "prune": prune}
    memory, copy = small(**options), small(**options, seed=9)
    advance(memory, 0)
    copy.load_state_dict(memory.state_dict())
    assert copy.summary() == memory.summary()
    assert advance(copy, 200) == advance(memory, 200)
    assert copy.events() == memory.events()
    assert {kind for _, kind, _ in memory.events()} >= {"created", "evicted", "promoted", "pruned"}
    assert memory.nbytes >= 48 * len(memory)
