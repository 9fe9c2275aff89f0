"""k-means against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from climb.errors import InputError
from climb.evaluation.kmeans import k_means, refine, spread_start


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


def test_more_clusters_than_points_are_refused() -> None:
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
