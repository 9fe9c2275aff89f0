"""Scores: calibrated without labels, strictly ordered by distance, and the same while the memory changes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from climb.errors import ClimbError, InputError
from climb.novelty import ReferenceSet, RunningReference, find_neighbours, unit_features
from climb.novelty.scores import calibrated


def around(n: int, seed: int, shift: float = 0.0) -> torch.Tensor:
    """Features around one direction; ``shift`` turns them away from it."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.ones(32)
    centre[:16] -= shift
    return (centre + 0.5 * torch.randn(n, 32, generator=generator)).clamp(min=0)


def test_neighbours_are_those_of_a_full_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("climb.novelty.neighbours.ENTRIES_AT_ONCE", 70)  # several blocks
    queries, references = unit_features(around(11, 0)), unit_features(around(30, 1))
    found = find_neighbours(queries, references, 4)
    expected = (1 - queries @ references.T).sort(dim=1)
    assert torch.equal(found.indices, expected.indices[:, :4])
    torch.testing.assert_close(found.distances, expected.values[:, :4])
    own = find_neighbours(references, references, 3, themselves=True)
    assert not (own.indices == torch.arange(30)[:, None]).any()


def test_the_distance_is_the_mean_cosine_distance_after_a_root() -> None:
    stored, image = around(40, 0), around(1, 1)
    scored = ReferenceSet(stored).score(image)
    cosines = F.cosine_similarity(image.sqrt(), stored.sqrt())
    assert scored.distances.item() == pytest.approx(1 - cosines.topk(3).values.mean().item(), abs=1e-5)
    assert scored.nearest.item() == cosines.argmax()


def test_of_images_like_the_stored_ones_the_expected_share_scores_high() -> None:
    reference = ReferenceSet(around(2000, 0))
    scores = reference.score(around(4000, 1)).scores
    for share in (0.5, 0.9, 0.95, 0.99):
        assert (scores > share).double().mean().item() == pytest.approx(1 - share, abs=0.03)
    assert (reference.score(around(100, 2, shift=1.0)).scores > 0.99).double().mean() > 0.9


def test_scores_are_strictly_increasing_also_beyond_the_farthest_stored_image() -> None:
    own = torch.tensor([0.1, 0.1, 0.2, 0.3])
    scores = calibrated(torch.tensor([0.0, 0.05, 0.1, 0.15, 0.25, 0.3, 0.31, 0.5, 1.9]), own)
    assert bool((scores.diff() > 0).all())
    assert scores[0] == 0
    assert scores[-1] < 1


def test_unusable_features_are_refused() -> None:
    with pytest.raises(InputError, match="9 images are stored; novelty needs at least 10"):
        ReferenceSet(around(9, 0))
    with pytest.raises(InputError, match="32 numbers each"):
        ReferenceSet(around(20, 0)).score(torch.zeros(3, 8))
    with pytest.raises(ClimbError, match="not finite"):
        ReferenceSet(torch.full((20, 8), torch.nan))


def test_a_running_reference_scores_as_a_fixed_one() -> None:
    stored, images = around(60, 0), around(20, 1, shift=0.3)
    running = RunningReference(60, most_bytes=10**6)
    for start in range(0, 60, 7):  # one after another, then all again: distances to each other are complete
        rows = list(range(start, min(start + 7, 60)))
        running.put(rows, stored[rows], now=0)
    running.put(range(60), stored, now=1)
    fixed = ReferenceSet(stored).score(images)
    scored = running.score(images)
    torch.testing.assert_close(scored.scores, fixed.scores, atol=1e-5, rtol=0)
    assert torch.equal(scored.nearest, fixed.nearest)
    running.drop_others(range(20, 60))
    running.put(range(20, 60), stored[20:], now=2)
    left = ReferenceSet(stored[20:]).score(images)
    torch.testing.assert_close(running.score(images).scores, left.scores, atol=1e-5, rtol=0)
    assert torch.equal(running.score(images).nearest, left.nearest + 20)


def test_a_running_reference_renews_the_oldest_and_keeps_its_bound() -> None:
    running = RunningReference(1000, most_bytes=100 * 4 * 32)
    wanted = running.missing(range(1000))
    assert 50 < len(wanted) <= 1000
    running.put(wanted[:50], around(50, 0), now=3)
    running.put(wanted[:5], around(5, 1), now=4)
    assert running.oldest(2, before=4) == wanted[5:7]
    assert running.oldest(100, before=3) == []
    more = running.missing(range(1000))
    assert len(more) == 0 or len(running) + len(more) <= 100
    assert running.nbytes <= 100 * 4 * 33
    with pytest.raises(ClimbError, match="the most that may be"):
        running.put(range(2000, 2100), around(100, 2), now=5)
