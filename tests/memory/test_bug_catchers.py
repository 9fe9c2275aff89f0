"""Small tests for large mistakes: each of these fails on a fault that a published implementation had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from traffic import IMAGE_SHAPE, drifting_clusters, numbered_images

from climb.contrib.released import ReferenceMemory, SwappedRefreshMemory
from climb.memory import CentroidMemory

DIM = 16


def grown(kind: Any = CentroidMemory, capacity: int = 60, **options: Any) -> tuple[Any, torch.Tensor]:
    """A memory with images in both tiers, and all inserted embeddings by image id."""
    sizes = {"stm_centroids": 10, "ltm_centroids": 6, "images_per_centroid": 5, "window": 50}
    memory = kind(capacity, IMAGE_SHAPE, DIM, **{**sizes, "novelty_percentile": 0.9, **options})
    embeddings = torch.from_numpy(drifting_clusters(300, DIM, clusters=15, spread=0.3, seed=4))
    memory.insert(numbered_images(0, 300), embeddings)
    assert len(memory.stm.ids) > 3
    assert len(memory.ltm.ids) > 3
    return memory, embeddings


def distance_to_own_centroid(memory: Any, ids: torch.Tensor, embeddings: torch.Tensor) -> float:
    """Mean cosine distance of stored images to the centroid that holds them."""
    own = {
        image: value
        for tier in (memory.stm, memory.ltm)
        for value, images in zip(tier.values, tier.ids, strict=True)
        for image in images
    }
    values = torch.stack([own[image] for image in ids.tolist()])
    return float(1 - torch.nn.functional.cosine_similarity(values, embeddings, dim=1).mean())


def replay(memory: Any, embeddings: torch.Tensor, times: int) -> list[float]:
    """Distance of replayed images to their own centroid, before each refresh."""
    distances = []
    for _ in range(times):
        batch = memory.sample(20)
        assert batch is not None
        # The encoder has moved on since these images came in: embeddings drifted, each in its own direction.
        now = embeddings[batch.ids.clamp(min=0)]
        distances.append(distance_to_own_centroid(memory, batch.ids, now))
        memory.refresh(batch.ids, now)
    return distances


def test_replay_pulls_centroids_toward_their_own_images() -> None:
    memory, embeddings = grown()
    drifted = embeddings + 0.5 * torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(0))
    batch = memory.sample(30)
    before = distance_to_own_centroid(memory, batch.ids, drifted[batch.ids])
    memory.refresh(batch.ids, drifted[batch.ids])
    assert distance_to_own_centroid(memory, batch.ids, drifted[batch.ids]) < 0.8 * before
    distances = replay(memory, drifted, 30)
    assert np.mean(distances[-5:]) < 0.8 * before


def test_the_released_code_pushes_centroids_away() -> None:
    memory, embeddings = grown(ReferenceMemory, capacity=200)
    batch = memory.sample(20)
    originals = embeddings[batch.ids.clamp(min=0)]
    before = distance_to_own_centroid(memory, batch.ids, originals)
    memory.refresh(batch.ids, originals)
    assert distance_to_own_centroid(memory, batch.ids, originals) > before


def test_the_swapped_refresh_alone_pushes_centroids_away() -> None:
    memory, embeddings = grown(SwappedRefreshMemory)
    sound, _ = grown()
    batch = memory.sample(30)
    originals = embeddings[batch.ids]
    before = distance_to_own_centroid(memory, batch.ids, originals)
    memory.refresh(batch.ids, originals)
    assert distance_to_own_centroid(memory, batch.ids, originals) > before
    # As if the sound memory were told that the first rows are short-term images, which are the last.
    long = int(torch.isin(batch.ids, torch.tensor([image for ids in sound.ltm.ids for image in ids])).sum())
    assert 0 < long < 30
    sound.refresh(batch.ids, torch.cat([originals[30 - long :], originals[: 30 - long]]))
    torch.testing.assert_close(memory.stm.values, sound.stm.values)
    torch.testing.assert_close(memory.ltm.values, sound.ltm.values)


def test_replay_does_not_move_other_centroids() -> None:
    memory, _ = grown()
    stm, ltm = memory.stm, memory.ltm
    memory.refresh(torch.tensor([ltm.ids[1][2], stm.ids[2][0]]), torch.ones(2, DIM))
    for before, after, moved in ((stm, memory.stm, 2), (ltm, memory.ltm, 1)):
        changed = (before.values != after.values).any(dim=1).nonzero().flatten().tolist()
        assert changed == [moved]
        assert torch.equal(before.updated, after.updated)
        assert before.ids == after.ids


def test_the_order_of_replayed_rows_does_not_matter() -> None:
    one, embeddings = grown()
    other, _ = grown()
    batch = one.sample(30)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    one.refresh(batch.ids, embeddings[batch.ids])
    other.refresh(batch.ids[order], embeddings[batch.ids][order])
    torch.testing.assert_close(one.stm.values, other.stm.values)
    torch.testing.assert_close(one.ltm.values, other.ltm.values)


@pytest.mark.parametrize("window", [5, 20])
def test_the_window_holds_one_distance_per_image(window: int) -> None:
    # Two centroids on the axes that never move or fill up; the angle of an image decides its distance.
    memory = CentroidMemory(
        400, IMAGE_SHAPE, 2, stm_centroids=2, ltm_centroids=1, images_per_centroid=200, window=window,
        novelty_percentile=1.0, stm_rate=0.0,
    )  # fmt: skip
    memory.insert(numbered_images(0, 2), torch.eye(2))
    far = torch.tensor([[1.0, 0.5]])
    near = torch.tensor([[1.0, 0.1]])
    memory.insert(numbered_images(2, 1), far)
    thresholds = []
    for image in range(window + 1):
        memory.insert(numbered_images(3 + image, 1), near)
        thresholds.append(memory.threshold)
    distances = [1 - float(z[0, 0] / z.norm()) for z in (far, near)]
    # The far image is the largest of the window for exactly as long as it is one of the last ``window``.
    assert thresholds[window - 2] == pytest.approx(distances[0], abs=1e-6)
    assert thresholds[window - 1] == pytest.approx(distances[1], abs=1e-6)


def test_about_one_image_in_twenty_is_novel_when_distances_are_stationary() -> None:
    generator = torch.Generator().manual_seed(0)
    memory = CentroidMemory(2500, IMAGE_SHAPE, 32)
    memory.insert(numbered_images(0, 1500), torch.randn(1500, 32, generator=generator))
    report = memory.insert(numbered_images(1500, 2000), torch.randn(2000, 32, generator=generator))
    assert report.novel / 2000 == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize("prune", ["anchor", "selective"])
def test_pruning_does_not_change_the_long_term_memory(prune: str) -> None:
    memory, _ = grown(capacity=44, prune=prune)
    embeddings = torch.from_numpy(drifting_clusters(300, DIM, clusters=15, spread=0.3, seed=5))
    pruned = 0
    for image, embedding in enumerate(embeddings, start=300):
        before = memory.ltm
        report = memory.insert(numbered_images(image, 1), embedding[None])
        after = memory.ltm
        if report.pruned and not report.promoted:
            pruned += 1
            assert after.ids == before.ids
            assert torch.equal(after.values, before.values)
    assert pruned >= 3
