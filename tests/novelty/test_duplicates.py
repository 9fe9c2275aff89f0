"""Duplicates: small changes are found, different images are not, by exact and by approximate search."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from climb.export.duplicates import small_changes
from climb.novelty import unit_features
from climb.novelty.approximate import approximate_search
from climb.novelty.duplicates import close_pairs, exact_search, small_change_threshold
from climb.novelty.thumbnails import correlations, thumbnails


def scenes(n: int, seed: int = 0, side: int = 96) -> torch.Tensor:
    """Images with structure at a large scale, as photographs have."""
    random = np.random.default_rng(seed)
    small = [Image.fromarray(random.integers(0, 256, (7, 7, 3), dtype=np.uint8)) for _ in range(n)]
    large = [np.asarray(one.resize((side, side), Image.Resampling.BICUBIC)) for one in small]
    return torch.from_numpy(np.stack(large)).permute(0, 3, 1, 2).contiguous()


def test_small_changes_correlate_and_other_images_do_not() -> None:
    images = scenes(20)
    thumbs = thumbnails(images)
    for changed in zip(*(small_changes(image) for image in images), strict=True):
        same = thumbnails(torch.stack(list(changed)))
        assert correlations(thumbs, same).min() > 0.95
        assert correlations(thumbs, same.roll(1, dims=0)).max() < 0.9


def test_pairs_need_near_features_and_equal_pixels() -> None:
    images = scenes(12)
    features = torch.rand(12, 16, generator=torch.Generator().manual_seed(0))
    thumbs = thumbnails(torch.cat([images, images[:3]]))
    units = unit_features(
        torch.cat([features, features[:2] + 0.001, features[:1]])
    )  # the last: pixels of 2, feature of 0
    pairs = {(pair.first, pair.second) for pair in close_pairs(units, thumbs, threshold=1e-3)}
    assert pairs == {(0, 12), (1, 13)}
    across = close_pairs(units[12:], thumbs[12:], 1e-3, others=(units[:12], thumbs[:12]))
    assert {(pair.first, pair.second) for pair in across} == {(0, 0), (1, 1)}


def test_the_threshold_is_a_quantile_of_the_spread() -> None:
    originals = unit_features(torch.rand(50, 8, generator=torch.Generator().manual_seed(0)))
    changed = unit_features(torch.rand(4, 50, 8, generator=torch.Generator().manual_seed(1)).flatten(0, 1)).view(
        4, 50, 8
    )
    distances = 1 - (originals * changed).sum(dim=2)
    assert (distances < small_change_threshold(originals, changed)).float().mean().item() == pytest.approx(
        0.99, abs=0.01
    )


def test_approximate_search_finds_what_exact_search_finds() -> None:
    pytest.importorskip("usearch")
    generator = torch.Generator().manual_seed(0)
    units = unit_features(
        torch.randn(50, 32, generator=generator).repeat(40, 1) + 0.3 * torch.randn(2000, 32, generator=generator)
    )
    exact, rows = exact_search(units[:200], units, 5)
    distances, found = approximate_search(units[:200], units, 5)
    hits = (found[:, :, None] == rows[:, None, :]).any(dim=1).float().mean()
    assert hits > 0.95
    assert distances[:, 1].median().item() == pytest.approx(exact[:, 1].median().item(), abs=5e-3)
