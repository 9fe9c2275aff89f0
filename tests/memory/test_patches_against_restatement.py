"""PCMC's memory and its plain re-implementation agree patch for patch on the same stream and sleeps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from patch_restatement import Group, PatchRestatement
from traffic import IMAGE_SHAPE, drifting_clusters, numbered_images, numbers_of

from climb.contrib.pcmc.memory import PatchMemory

SMALL: dict[str, Any] = {
    "stm_centroids": 9,
    "patches_per_centroid": 5,
    "least_patches": 2,
    "window": 40,
    "novelty_percentile": 0.8,
}
PAPER: dict[str, Any] = {
    "stm_centroids": 400,
    "patches_per_centroid": 30,
    "least_patches": 5,
    "window": 1000,
    "novelty_percentile": 0.95,
}


def make(sizes: dict[str, Any], dim: int, seed: int) -> PatchMemory:
    rest = dict(sizes)
    return PatchMemory(rest.pop("stm_centroids"), IMAGE_SHAPE, dim, seed=seed, **rest)


def assert_same_tier(ours: PatchMemory, tier: Any, theirs: list[Group]) -> None:
    theirs = sorted(theirs, key=lambda group: group.place)
    assert getattr(ours, tier).ids == [group.patches for group in theirs]
    if theirs:
        values = ours.state_dict()["values"][[group.place for group in theirs]]
        np.testing.assert_allclose(values.numpy(), np.stack([group.value for group in theirs]), rtol=1e-4, atol=1e-4)


def assert_same_memory(ours: PatchMemory, theirs: PatchRestatement) -> None:
    assert len(ours) == theirs.total
    assert_same_tier(ours, "stm", theirs.stm)
    assert_same_tier(ours, "ltm", theirs.ltm)
    np.testing.assert_allclose(ours.threshold, theirs.threshold, atol=1e-5)


def drive(
    embeddings: np.ndarray, sizes: dict[str, Any], *, sleep: int, most: int, seed: int, reload: bool = False
) -> Counter[str]:
    """Both memories through the stream, asleep every ``sleep`` patches, compared after every insert and sleep."""
    rng = np.random.default_rng(seed)
    dim = embeddings.shape[1]
    ours = make(sizes, dim, seed)
    theirs = PatchRestatement(seed=seed, **sizes)
    happened: Counter[str] = Counter()
    now, start = embeddings, 0
    while start < len(now):
        batch = now[start : start + int(rng.integers(1, most))]
        report = ours.insert(numbered_images(start, len(batch)), torch.from_numpy(batch))
        assert report == theirs.insert(batch), f"at patch {start}"
        happened.update(vars(report))
        slept = start // sleep
        start += len(batch)
        assert_same_memory(ours, theirs)
        if start // sleep == slept:
            continue
        assert sorted(numbers_of(ours.rehearsal())) == sorted(theirs.rehearsal())
        # The encoder has changed: some embeddings are rotated.
        now = (embeddings @ (np.eye(dim) + 0.3 * rng.standard_normal((dim, dim)))).astype(np.float32)
        dropped = ours.after_sleep(lambda images, table=now: torch.from_numpy(table[numbers_of(images)]))  # type: ignore[misc]
        assert dropped == theirs.after_sleep(now)
        happened["slept"] += 1
        happened["thinned"] += sum(sizes["patches_per_centroid"] > len(group.patches) for group in theirs.ltm)
        assert_same_memory(ours, theirs)
        if reload:
            saved = ours.state_dict()
            ours = make(sizes, dim, seed + 1)
            ours.load_state_dict(saved)
    return happened


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("most", [2, 13, 90])
@pytest.mark.parametrize("seed", range(3))
def test_small_memory_agrees_patch_for_patch(seed: int, most: int, reload: bool) -> None:
    embeddings = drifting_clusters(700, 8, clusters=10, spread=0.35, seed=seed)
    happened = drive(embeddings, SMALL, sleep=120, most=most, seed=seed, reload=reload)
    assert happened["evicted"] >= 20
    assert happened["promoted"] >= 10
    assert happened["rejected"] >= 20
    assert happened["slept"] >= 4
    assert happened["thinned"] >= 5


def test_zero_embeddings_are_at_distance_one_in_both() -> None:
    embeddings = drifting_clusters(300, 8, clusters=10, spread=0.35, seed=5)
    embeddings[::9] = 0.0
    drive(embeddings, SMALL, sleep=100, most=20, seed=5)


@pytest.mark.slow(seconds=30)
def test_memory_of_the_papers_size_agrees_patch_for_patch() -> None:
    embeddings = drifting_clusters(9000, 64, clusters=300, spread=0.5, task=3000, seed=3)
    happened = drive(embeddings, PAPER, sleep=3000, most=320, seed=3)
    assert happened["promoted"] >= 15
    assert happened["evicted"] >= 20
