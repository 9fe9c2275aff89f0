"""The measures of diversity against independent implementations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.spatial.distance as distance
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from climb.errors import InputError
from climb.evaluation import diversity
from climb.evaluation.diversity import (
    Clusters,
    cluster_distances,
    k_means,
    measure_diversity,
    refine,
    spread_start,
    uniformity,
    unit_rows,
    vendi_score,
)


def embeddings(count: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, width, generator=generator) + 0.5


@pytest.mark.parametrize(("count", "width"), [(12, 40), (40, 12), (1, 5)])
def test_vendi_score_is_the_matrix_formula_of_the_paper(count: int, width: int) -> None:
    """exp(-tr(K/n log K/n)), with scipy's matrix logarithm, of a kernel made invertible for it."""
    rows = embeddings(count, width).double().numpy()
    kernel = 1 - distance.squareform(distance.pdist(rows, "cosine")) if count > 1 else np.ones((1, 1))
    density = kernel / count + 1e-13 * np.eye(count)
    expected = np.exp(-np.trace(density @ scipy.linalg.logm(density)).real)
    assert vendi_score(unit_rows(torch.from_numpy(rows))) == pytest.approx(expected, rel=1e-6)


def test_images_along_one_axis_are_one_image() -> None:
    # All other eigenvalues are exactly zero, which has no logarithm.
    assert vendi_score(torch.eye(4)[[1, 1, 1, 1, 1]]) == pytest.approx(1.0)


@pytest.mark.parametrize("at_once", [7, 2048])
def test_uniformity_is_the_mean_over_different_pairs(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diversity, "ROWS_AT_ONCE", at_once)
    rows = embeddings(30, 6).double().numpy()
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = np.log(np.exp(-2 * distance.pdist(units, "sqeuclidean")).mean())
    assert uniformity(unit_rows(torch.from_numpy(rows))) == pytest.approx(expected, rel=1e-10)


def test_cluster_distances_are_cosine_distances_to_and_between_the_means() -> None:
    units = unit_rows(embeddings(80, 6)).unsqueeze(0)
    intra, ratio = cluster_distances(units, 9, generator=torch.Generator().manual_seed(3))
    found = k_means(units, 9, generator=torch.Generator().manual_seed(3))
    points, labels = units[0].numpy(), found.labels[0].numpy()
    means = np.stack([points[labels == cluster].mean(0) for cluster in range(9)])
    expected = np.mean([distance.cosine(point, means[label]) for point, label in zip(points, labels, strict=True)])
    assert intra == pytest.approx([expected])
    assert ratio == pytest.approx([distance.pdist(means, "cosine").mean() / expected])


def test_a_full_memory_is_subsampled_ten_times_and_a_short_one_taken_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    clustered: list[torch.Tensor] = []

    def watched(points: torch.Tensor, *arguments: Any, **settings: Any) -> tuple[list[float], list[float]]:
        clustered.append(points)
        return cluster_distances(points, *arguments, **settings)

    monkeypatch.setattr(diversity, "cluster_distances", watched)
    full = measure_diversity(embeddings(50, 8), clusters=5, subsample=40, seed=1)
    assert (full.images, full.subsample, full.clusters) == (50, 40, 5)
    assert full.intra_distance_std is not None
    assert full.intra_distance_std > 0
    short = measure_diversity(embeddings(50, 8)[:30], clusters=5, subsample=40, seed=1)
    assert (short.images, short.subsample, short.intra_distance_std) == (30, 30, None)
    assert [points.shape for points in clustered] == [(10, 40, 8), (1, 30, 8)]
    assert len({points.numpy().tobytes() for points in clustered[0]}) == 10  # each a draw of its own


def test_same_seed_same_numbers_and_the_global_generator_is_left_alone() -> None:
    rows = embeddings(60, 8)
    before = torch.get_rng_state()
    first, second, other = (measure_diversity(rows, clusters=6, subsample=50, seed=seed) for seed in (1, 1, 2))
    assert first == second
    assert first.intra_distance != other.intra_distance
    assert torch.equal(before, torch.get_rng_state())


def test_tight_groups_far_apart_have_a_higher_ratio() -> None:
    generator = torch.Generator().manual_seed(0)
    middles = torch.eye(10).repeat_interleave(8, 0)
    ratios = []
    for spread in (0.05, 0.3):
        rows = middles + spread * torch.randn(80, 10, generator=generator)
        found = measure_diversity(rows, clusters=10, subsample=80, seed=0)
        assert found.inter_intra_ratio is not None
        ratios.append(found.inter_intra_ratio)
    assert ratios[0] > 5 * ratios[1]


def test_a_cluster_per_image_has_no_ratio() -> None:
    found = measure_diversity(embeddings(4, 8), clusters=10, subsample=10, seed=0)
    assert found.clusters == 4
    assert (found.intra_distance, found.inter_intra_ratio) == (None, None)


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 20), width=st.integers(1, 20), copies=st.integers(1, 3), seed=st.integers(0, 99))
def test_vendi_score_lies_between_one_and_the_number_of_images(count: int, width: int, copies: int, seed: int) -> None:
    rows = embeddings(count, width, seed)
    once = vendi_score(unit_rows(rows))
    assert 1 - 1e-9 <= once <= min(count, width) + 1e-9
    # Storing everything twice adds no diversity.
    assert vendi_score(unit_rows(rows.repeat(copies, 1))) == pytest.approx(once, rel=1e-9)


@pytest.mark.parametrize("shape", [(0, 4), (3,)])
def test_wrong_shapes_of_embeddings_are_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="embeddings must be"):
        measure_diversity(torch.zeros(shape), clusters=2, subsample=2, seed=0)


@pytest.mark.parametrize(("clusters", "subsample"), [(1, 4), (4, 1)])
def test_fewer_than_two_clusters_or_images_are_rejected(clusters: int, subsample: int) -> None:
    with pytest.raises(InputError, match="must be at least 2"):
        measure_diversity(embeddings(5, 3), clusters=clusters, subsample=subsample, seed=0)


@pytest.mark.gpu
def test_a_gpu_measures_what_the_cpu_does() -> None:
    rows = embeddings(300, 24)
    here, there = (measure_diversity(rows.to(device), clusters=12, subsample=250, seed=0) for device in ("cpu", "cuda"))
    assert there.vendi_score == pytest.approx(here.vendi_score, rel=1e-9)
    assert there.uniformity == pytest.approx(here.uniformity, rel=1e-9)
    assert there.intra_distance == pytest.approx(here.intra_distance, rel=0.01)  # a tie may fall the other way
    assert there.inter_intra_ratio == pytest.approx(here.inter_intra_ratio, rel=0.01)


def test_a_cluster_without_images_is_no_ones_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    points = torch.tensor([[[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]]])
    centres = torch.tensor([[[0.8, 0.4], [-1.0, 0.0], [0.0, 1.0]]])
    labels, sizes = torch.tensor([[0, 0, 1]]), torch.tensor([[2.0, 1.0, 0.0]])
    found = Clusters(centres=centres, labels=labels, sizes=sizes)
    monkeypatch.setattr(diversity, "k_means", lambda points, k, generator: found)
    (intra,), (ratio,) = cluster_distances(points, 3, generator=torch.Generator())
    cosine = 2 / math.sqrt(5)  # of the first two images to their mean; of that to the third image it is the same, minus
    assert intra == pytest.approx(2 / 3 * (1 - cosine), abs=1e-6)
    assert ratio == pytest.approx((1 + cosine) / intra, abs=1e-4)


def blobs(samples: int, count: int, width: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    middles = torch.randn(8, width, generator=generator)
    which = torch.randint(8, (samples, count), generator=generator)
    return middles[which] + 0.4 * torch.randn(samples, count, width, generator=generator)


def test_refine_finds_what_scikit_learn_finds_from_the_same_start() -> None:
    points = blobs(3, 120, 5, seed=0)
    start = spread_start(points, 12, generator=torch.Generator().manual_seed(1))
    ours = refine(points.double(), start.double())
    for sample in range(3):
        theirs = KMeans(12, init=start[sample].numpy(), n_init=1, tol=0, algorithm="lloyd").fit(points[sample].double())
        np.testing.assert_array_equal(ours.labels[sample].numpy(), theirs.labels_)
        np.testing.assert_allclose(ours.centres[sample].numpy(), theirs.cluster_centers_, atol=1e-6)


def test_starts_are_different_points_of_the_sample() -> None:
    points = blobs(1, 200, 4, seed=2)
    start = spread_start(points, 8, generator=torch.Generator().manual_seed(0))[0]
    matches = (start.unsqueeze(1) == points[0].unsqueeze(0)).all(2)
    assert matches.any(1).all()
    assert len(matches.int().argmax(1).unique()) == 8


def test_draws_follow_the_squared_distance() -> None:
    """Of points at 0, 1 and 3 and a first draw at 0, the second is at 3 nine times in ten."""
    points = torch.tensor([0.0, 1.0, 3.0]).view(1, 3, 1).repeat(6000, 1, 1)
    starts = spread_start(points, 2, generator=torch.Generator().manual_seed(0))[:, :, 0]
    from_zero = starts[starts[:, 0] == 0]
    assert 1800 < len(from_zero) < 2200  # the first is uniform
    assert (from_zero[:, 1] == 3).float().mean().item() == pytest.approx(0.9, abs=0.025)


def test_duplicates_leave_clusters_empty_and_nothing_breaks() -> None:
    points = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]).unsqueeze(0)
    found = k_means(points, 3, generator=torch.Generator().manual_seed(0))
    assert sorted(found.sizes[0].tolist()) == [0, 1, 2]
    assert torch.isfinite(found.centres).all()


def test_one_cluster_is_the_mean_of_all() -> None:
    points = blobs(2, 30, 3, seed=0)
    found = k_means(points, 1, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.centres[:, 0], points.mean(1))


def test_a_centre_moves_to_the_only_point_of_its_cluster() -> None:
    found = refine(torch.tensor([[[0.0], [10.0]]]), torch.tensor([[[1.0], [8.0]]]))
    assert found.centres.flatten().tolist() == [0.0, 10.0]


def test_more_clusters_than_points_are_rejected() -> None:
    with pytest.raises(InputError, match="k = 4"):
        k_means(torch.zeros(1, 3, 2), 4, generator=torch.Generator())


def test_the_centre_of_an_empty_cluster_stays_where_it_is() -> None:
    points = torch.tensor([[[1.0], [2.0], [5.0], [6.0]]])
    found = refine(points, torch.tensor([[[1.0], [100.0], [7.0]]]))
    assert found.centres.flatten().tolist() == [1.5, 100.0, 5.5]
    assert found.sizes.flatten().tolist() == [2, 0, 2]


def test_starts_are_drawn_in_proportion_to_the_squared_distance() -> None:
    samples = 20_000
    points = torch.tensor([0.0, 1.0, 2.0, 3.0]).view(1, 4, 1).expand(samples, 4, 1)
    first, second = spread_start(points, 2, generator=torch.Generator().manual_seed(0))[:, :, 0].unbind(1)
    drawn = torch.bincount(second[first == 0].long(), minlength=4) / (first == 0).sum()
    assert drawn.tolist() == pytest.approx([0, 1 / 14, 4 / 14, 9 / 14], abs=0.02)


def test_starts_come_from_the_given_generator_alone() -> None:
    points = torch.randn(2, 30, 3, generator=torch.Generator().manual_seed(1))
    one, other = (spread_start(points, 4, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    assert torch.equal(one, other)
