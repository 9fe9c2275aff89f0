"""The closest pair of centroids, against comparing all of them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from climb.memory import CentroidMemory
from climb.memory import centroid as centroid_module
from climb.memory.pairs import AT_ONCE, ClosestPair


def by_all_comparisons(values: dict[int, torch.Tensor]) -> float:
    unit = F.normalize(torch.stack(list(values.values())), dim=1)
    return float((unit @ unit.T).fill_diagonal_(-2.0).max())


@pytest.mark.parametrize("step", [0.002, 0.05, 1.0])
def test_the_pair_equals_that_of_all_comparisons(step: float) -> None:
    generator = torch.Generator().manual_seed(0)
    most = 160
    pairs, values = ClosestPair(most, 8, "cpu"), {}
    for turn in range(120):
        while len(values) < most:
            row = int(torch.randint(0, 10_000, (), generator=generator))
            if row not in values:
                values[row] = torch.randn(8, generator=generator)
                pairs.put([row], values[row][None])
        rows = [list(values)[k] for k in torch.randperm(most, generator=generator)[:40]]
        for row in rows:
            values[row] = values[row] + step * torch.randn(8, generator=generator)
        pairs.put(rows, torch.stack([values[row] for row in rows]))
        one, other = pairs.closest()
        assert one != other
        found = float(F.cosine_similarity(values[one], values[other], dim=0))
        assert found == pytest.approx(by_all_comparisons(values), abs=1e-6), f"turn {turn}"
        values[one] = (values[one] + values.pop(other)) / 2
        pairs.drop(other)
        pairs.put([one], values[one][None])


def test_free_slots_are_not_compared() -> None:
    """Two opposite centroids remain: a zero vector in a free slot would be closer."""
    angles = torch.arange(0.0, 360.0, 9.0).deg2rad() + 0.05 * torch.randn(
        40, generator=torch.Generator().manual_seed(0)
    )
    values = dict(enumerate(torch.stack([angles.cos(), angles.sin()], dim=1)))
    pairs = ClosestPair(50, 2, "cpu")
    pairs.put(list(values), torch.stack(list(values.values())))
    while len(values) > 1:
        one, other = pairs.closest()
        found = float(F.cosine_similarity(values[one], values[other], dim=0))
        assert found == pytest.approx(by_all_comparisons(values), abs=1e-6), f"{len(values)} left"
        del values[other]
        pairs.drop(other)
    assert found < 0


def test_clear_removes_all() -> None:
    pairs, fresh = ClosestPair(4, 2, "cpu"), ClosestPair(4, 2, "cpu")
    pairs.put([0, 1, 2], torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2]]))
    pairs.clear()
    for each in (pairs, fresh):
        each.put([3, 2, 7, 8], torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5], [0.0, -1.0]]))
    assert set(pairs.closest()) == set(fresh.closest()) == {2, 7}


def test_a_loaded_table_decides_alike() -> None:
    """All are equally similar: nothing but their order decides, and that is not the order of their rows."""
    pairs, loaded = ClosestPair(6, 4, "cpu"), ClosestPair(6, 4, "cpu")
    loaded.put([1, 2], torch.ones(2, 4))  # replaced by loading
    for row, value in zip([9, 5, 3, 7], torch.eye(4), strict=True):
        pairs.put([row], value[None])
    pairs.drop(5)  # leaves a bound, and a place that the next one takes
    loaded.load_state_dict(pairs.state_dict())
    for each in (pairs, loaded):
        each.put([8], torch.eye(4)[1:2])
    assert pairs.closest() == loaded.closest() == (9, 8)
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in pairs.state_dict().items())


def test_a_state_is_a_copy() -> None:
    """Neither the saved nor the loaded table changes it later."""
    pairs, loaded = ClosestPair(6, 4, "cpu"), ClosestPair(6, 4, "cpu")
    pairs.put([0, 1, 2], torch.eye(4)[:3])
    state = pairs.state_dict()
    taken = copy.deepcopy(state)
    loaded.load_state_dict(state)
    for each in (pairs, loaded):
        each.drop(1)
        each.closest()
        each.put([0, 5], torch.tensor([[1.0, 0.0, 0.0, 0.5], [0.0, 0.0, 1.0, 1.0]]))
        each.drop(5)  # what 2 is closest to
    assert all(torch.equal(value, taken[name]) for name, value in state.items())


def test_bytes_count_directions_and_the_table() -> None:
    assert ClosestPair(10, 6, "cpu").nbytes == 10 * (6 * 4 + 4 + 8 + 1 + 1)  # direction, cosine, partner, two flags


def test_a_merge_compares_few_centroids(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2000, 8, generator=generator)
    pairs = ClosestPair(2000, 8, "cpu")
    pairs.put(range(2000), values)
    for _ in range(20):
        rows = torch.randperm(2000, generator=generator)[:50]
        values[rows] += 0.1 * torch.randn(50, 8, generator=generator)
        pairs.put(rows.tolist(), values[rows])
    compared, look_up = [], ClosestPair._look_up
    monkeypatch.setattr(
        ClosestPair, "_look_up", lambda self, slots: compared.append(len(slots)) or look_up(self, slots)
    )
    pairs.closest()
    assert sum(compared) <= 2 * AT_ONCE


def test_a_memory_with_many_centroids_gives_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Image for image, through a save in the middle, whether all pairs are compared or few."""

    def memory() -> CentroidMemory:
        return CentroidMemory(
            200, (3, 2, 2), 6, stm_centroids=12, ltm_centroids=8, images_per_centroid=4, window=60, seed=3
        )

    plain = memory()
    monkeypatch.setattr(centroid_module, "MANY_CENTROIDS", 1)
    quick = memory()
    rng = np.random.default_rng(0)
    merged = 0
    for number in range(150):
        # Around a few directions, so that images join, centroids are promoted and merged.
        which = rng.integers(0, 14, 10)
        embeddings = torch.from_numpy(np.eye(6)[which % 6] * (1 + which[:, None] // 6)).float()
        embeddings += 0.25 * torch.from_numpy(rng.standard_normal((10, 6))).float()
        images = torch.from_numpy(rng.integers(0, 256, (10, 3, 2, 2), dtype=np.uint8))
        reports = [each.insert(images, embeddings) for each in (plain, quick)]
        assert reports[0] == reports[1]
        merged += reports[0].merged
        one, other = plain.sample(16), quick.sample(16)
        if one is not None and other is not None:
            assert torch.equal(one.ids, other.ids)
            fresh = torch.from_numpy(rng.standard_normal((16, 6))).float()
            plain.refresh(one.ids, fresh)
            quick.refresh(other.ids, fresh)
        if number == 75:
            state = quick.state_dict()
            quick = memory()
            quick.insert(images.repeat(20, 1, 1, 1), torch.from_numpy(rng.standard_normal((200, 6))).float())
            assert quick.ltm.ids  # replaced by loading
            quick.load_state_dict(state)
    assert merged > 20
    assert plain.ltm.ids == quick.ltm.ids
    assert plain.nbytes == 200 * 12 + (12 + 8) * 6 * 4  # images, and a value for each centroid
    assert quick.nbytes == plain.nbytes + ClosestPair(8 + 1, 6, "cpu").nbytes


def test_a_loaded_memory_merges_what_it_would_have_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Among many pairs that are equally similar. Older states, which do not tell, can be loaded too."""
    monkeypatch.setattr(centroid_module, "MANY_CENTROIDS", 1)

    def memory() -> CentroidMemory:
        return CentroidMemory(
            100, (3, 1, 1), 32, stm_centroids=8, ltm_centroids=10, images_per_centroid=3, novelty_percentile=0.5
        )

    went_on, loaded, older = memory(), memory(), memory()
    rng = np.random.default_rng(0)
    merged = 0
    for number in range(120):
        which = np.repeat(rng.integers(0, 32, 3), 4)  # what comes, comes often enough to be promoted
        embeddings = torch.from_numpy(np.eye(32, dtype=np.float32)[which])
        images = torch.zeros(12, 3, 1, 1, dtype=torch.uint8)
        merged += (report := went_on.insert(images, embeddings)).merged
        if number > 40:
            assert loaded.insert(images, embeddings) == report
            assert loaded.ltm.ids == went_on.ltm.ids
        if number == 40:
            state = went_on.state_dict()
            loaded.load_state_dict(state)
            older.load_state_dict({name: value for name, value in state.items() if name not in ("pairs", "norms")})
            assert older.ltm.ids == went_on.ltm.ids
            merged = 0
    assert merged > 5


def test_values_missing_from_an_older_state_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(centroid_module, "MANY_CENTROIDS", 1)
    went_on, older = (
        CentroidMemory(100, (3, 1, 1), 6, stm_centroids=8, ltm_centroids=5, images_per_centroid=3) for _ in range(2)
    )
    rng = np.random.default_rng(0)
    images = torch.zeros(12, 3, 1, 1, dtype=torch.uint8)
    merged = 0
    for number in range(60):
        embeddings = torch.from_numpy(rng.standard_normal((12, 6)).astype(np.float32))  # lengths of their own, no ties
        report = went_on.insert(images, embeddings)
        if number < 30:
            older.insert(images, 2 * embeddings.flip(0))  # replaced by loading
        if number == 30:
            state = went_on.state_dict()
            older.load_state_dict({name: value for name, value in state.items() if name not in ("pairs", "norms")})
        if number > 30:
            assert older.insert(images, embeddings) == report
            assert older.ltm.ids == went_on.ltm.ids
            merged += report.merged
    assert merged > 5


def test_norms_are_loaded_unchanged() -> None:
    """On a device a sum along one row of one need not have the last bits of the same sum along one row of many."""
    first, second = (CentroidMemory(60, (3, 1, 1), 4, stm_centroids=4, ltm_centroids=1) for _ in range(2))
    first.insert(torch.zeros(4, 3, 1, 1, dtype=torch.uint8), torch.eye(4))
    first._norms[2] = torch.nextafter(first._norms[2], torch.tensor(2.0))
    second.load_state_dict(first.state_dict())
    assert torch.equal(second._norms, first._norms)


def test_a_memory_with_many_centroids_is_loaded_before_its_first_promotion() -> None:
    def make() -> CentroidMemory:
        return CentroidMemory(
            4 * centroid_module.MANY_CENTROIDS,
            (3, 1, 1),
            4,
            stm_centroids=8,
            ltm_centroids=centroid_module.MANY_CENTROIDS,
            images_per_centroid=3,
        )

    first, second = make(), make()
    first.insert(torch.zeros(8, 3, 1, 1, dtype=torch.uint8), torch.eye(8, 4) + 1.0)  # as many as are novel anyway
    assert first.ltm.ids == []
    second.load_state_dict(first.state_dict())
    assert second.stm.ids == first.stm.ids
