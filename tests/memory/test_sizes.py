"""Impossible sizes and inputs are rejected; errors state the inequality."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from traffic import IMAGE_SHAPE, numbered_images

from climb.contrib.released import ReferenceMemory
from climb.errors import InputError
from climb.memory import CentroidMemory

BOTH = pytest.mark.parametrize("kind", [CentroidMemory, ReferenceMemory])


@BOTH
def test_the_long_term_memory_and_one_anchor_each_must_fit(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"K \* M \+ L <= N\): 60 \* 30 \+ 100 = 1900 > 1899") as refused:
        kind(1899, IMAGE_SHAPE, 8)
    assert isinstance(refused.value, InputError)
    assert len(kind(1900, IMAGE_SHAPE, 8)) == 0


@BOTH
def test_a_centroid_holds_at_least_two_images(kind: Any) -> None:
    with pytest.raises(ValueError, match="M >= 2; given 1"):
        kind(2500, IMAGE_SHAPE, 8, images_per_centroid=1)


@BOTH
@pytest.mark.parametrize("percentile", [-0.1, 1.01, 95, float("nan")])
def test_the_percentile_is_a_fraction(kind: Any, percentile: float) -> None:
    with pytest.raises(ValueError, match=rf"novelty_percentile must be in 0\.\.1.*given {percentile}"):
        kind(2500, IMAGE_SHAPE, 8, novelty_percentile=percentile)


@BOTH
@pytest.mark.parametrize("size", ["stm_centroids", "ltm_centroids"])
def test_both_memories_need_a_centroid(kind: Any, size: str) -> None:
    with pytest.raises(ValueError, match="stm_centroids >= 1 and ltm_centroids >= 1"):
        kind(2500, IMAGE_SHAPE, 8, **{size: 0})


@BOTH
def test_an_unknown_pruning_strategy_gets_the_nearest_name(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"unknown prune 'ancor'; did you mean 'anchor'\?"):
        kind(2500, IMAGE_SHAPE, 8, prune="ancor")


@BOTH
@pytest.mark.parametrize("option", [{"window": 0}, {"stm_rate": 1.5}, {"ltm_accept": -1.0}])
def test_other_options_are_checked_too(kind: Any, option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(ValueError, match=f"{name} must be"):
        kind(2500, IMAGE_SHAPE, 8, **option)


@BOTH
def test_embeddings_must_come_with_the_images_and_fit(kind: Any) -> None:
    memory = kind(2500, IMAGE_SHAPE, 8)
    with pytest.raises(InputError, match=r"embeddings must have shape \(2, 8\); given None"):
        memory.insert(numbered_images(0, 2), None)
    with pytest.raises(InputError, match=r"embeddings must have shape \(2, 8\); given \(2, 9\)"):
        memory.insert(numbered_images(0, 2), torch.zeros(2, 9))
    with pytest.raises(InputError, match=r"uint8 images of shape \(n, 3, 4, 4\)"):
        memory.insert(torch.zeros(2, *IMAGE_SHAPE), torch.zeros(2, 8))
    assert len(memory) == 0


@pytest.mark.parametrize("other", [{"stm_centroids": 3}, {"ltm_centroids": 3}, {"images_per_centroid": 4}])
def test_a_state_of_other_sizes_is_rejected(other: dict[str, int]) -> None:
    """Its centroids would be taken for others: there may be as many rows in all, or a full one may hold fewer."""
    sizes = {"stm_centroids": 2, "ltm_centroids": 2, "images_per_centroid": 3}
    memory = CentroidMemory(20, IMAGE_SHAPE, 8, **sizes)
    state = CentroidMemory(20, IMAGE_SHAPE, 8, **{**sizes, **other}).state_dict()
    with pytest.raises(InputError, match=r"the saved memory has \{.*\}; this one has \{"):
        memory.load_state_dict(state)
    for capacity, shape, dim in ((21, IMAGE_SHAPE, 8), (20, (3, 5, 5), 8), (20, IMAGE_SHAPE, 9)):
        with pytest.raises(InputError, match="the saved memory has"):
            memory.load_state_dict(CentroidMemory(capacity, shape, dim, **sizes).state_dict())
