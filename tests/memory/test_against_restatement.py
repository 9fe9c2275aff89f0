"""The fast memory and the plain re-implementation of Algorithm 1 agree image for image on the same stream."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from restatement import Centroid, Restatement
from traffic import IMAGE_SHAPE, drifting_clusters, numbered_images, numbers_of

from climb.memory import CentroidMemory

SMALL: dict[str, Any] = {
    "stm_centroids": 8,
    "ltm_centroids": 5,
    "images_per_centroid": 4,
    "window": 30,
    "novelty_percentile": 0.8,
}
PAPER: dict[str, Any] = {
    "stm_centroids": 100,
    "ltm_centroids": 60,
    "images_per_centroid": 30,
    "window": 1000,
    "novelty_percentile": 0.95,
}


def assert_same_side(ours: Any, theirs: list[Centroid]) -> None:
    theirs = sorted(theirs, key=lambda centroid: centroid.id)
    assert [int(i) for i in ours.centroids] == [c.id for c in theirs]
    assert [list(map(int, ids)) for ids in ours.ids] == [c.images for c in theirs]
    assert [int(n) for n in ours.counts] == [len(c.images) for c in theirs]
    assert [int(t) for t in ours.updated] == [c.updated for c in theirs]
    if theirs:
        expected = np.stack([c.value for c in theirs])
        np.testing.assert_allclose(ours.values.cpu().numpy(), expected, rtol=1e-4, atol=1e-4)


def assert_same_memory(ours: CentroidMemory, theirs: Restatement) -> None:
    assert len(ours) == theirs.total
    assert_same_side(ours.stm, theirs.stm)
    assert_same_side(ours.ltm, theirs.ltm)
    np.testing.assert_allclose(ours.threshold, theirs.threshold, atol=1e-5)


def drive(
    embeddings: np.ndarray, capacity: int, sizes: dict[str, Any], *, replay: int, seed: int, **options: Any
) -> Counter[str]:
    """Run both memories through the stream and compare them after every insert."""
    rng = np.random.default_rng(seed)
    ours = CentroidMemory(capacity, IMAGE_SHAPE, embeddings.shape[1], seed=seed, **sizes, **options)
    theirs = Restatement(capacity, seed=seed, **sizes, **options)
    start = compared_events = 0
    while start < len(embeddings):
        batch = embeddings[start : start + int(rng.integers(1, 13))]
        report = ours.insert(numbered_images(start, len(batch)), torch.from_numpy(batch))
        assert report == theirs.insert(batch), f"at image {start}"
        start += len(batch)
        assert_same_memory(ours, theirs)
        events = ours.events()
        assert events[compared_events:] == theirs.log[compared_events:]
        compared_events = len(events)
        drawn = ours.sample(replay) if replay else None
        assert (drawn is None) == (replay == 0 or theirs.total < replay)
        if drawn is not None:
            ids = drawn.ids.tolist()
            assert numbers_of(drawn.images) == ids
            # Views of a replayed image land near where it was first embedded, not exactly there.
            views = embeddings[ids] + 0.1 * rng.standard_normal((replay, embeddings.shape[1]))
            views = views.astype(np.float32)
            ours.refresh(drawn.ids, torch.from_numpy(views))
            theirs.refresh(ids, views)
    assert_same_memory(ours, theirs)
    assert ours.events() == theirs.log
    return Counter(kind for _, kind, _ in theirs.log)


@pytest.mark.parametrize("replay", [0, 16])
@pytest.mark.parametrize("prune", ["anchor", "selective"])
@pytest.mark.parametrize("seed", range(4))
def test_small_memory_agrees_image_for_image(seed: int, prune: str, replay: int) -> None:
    embeddings = drifting_clusters(700, 8, clusters=10, spread=0.35, seed=seed)
    happened = drive(embeddings, 33, SMALL, replay=replay, seed=seed, prune=prune)
    assert happened["evicted"] >= 20
    assert happened["promoted"] >= 20
    assert happened["merged"] >= 15
    assert happened["pruned"] >= 10


@pytest.mark.parametrize("accept", [0.0, 1.0])
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_rates_agree(rate: float, accept: float) -> None:
    embeddings = drifting_clusters(300, 8, clusters=10, spread=0.35, seed=11)
    happened = drive(embeddings, 33, SMALL, replay=16, seed=11, stm_rate=rate, ltm_accept=accept)
    assert happened["promoted"] >= 10


def test_zero_embeddings_are_at_distance_one_in_both() -> None:
    embeddings = drifting_clusters(200, 8, clusters=10, spread=0.35, seed=5)
    embeddings[::9] = 0.0
    drive(embeddings, 33, SMALL, replay=0, seed=5)


@pytest.mark.parametrize("prune", ["anchor", pytest.param("selective", marks=pytest.mark.slow)])
def test_memory_of_the_papers_size_agrees_image_for_image(prune: str) -> None:
    embeddings = drifting_clusters(4600, 64, clusters=150, spread=0.5, task=500, seed=3)
    happened = drive(embeddings, 2500, PAPER, replay=128, seed=3, prune=prune)
    assert happened["evicted"] >= 50
    assert happened["promoted"] >= 20
    assert happened["pruned"] >= 1
