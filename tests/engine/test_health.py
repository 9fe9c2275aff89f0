from __future__ import annotations

import math

import pytest
import torch

from climb.engine.health import health
from climb.errors import ClimbError


def test_random_directions_are_healthy_and_one_point_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    alive = health(torch.randn(200, 16, generator=generator))
    assert 0.9 < alive.spread < 1.1
    assert alive.effective_rank > 14
    assert not alive.collapsed
    point = torch.randn(1, 16, generator=generator) + 1e-4 * torch.randn(200, 16, generator=generator)
    assert health(point).collapsed


def test_embeddings_that_are_no_numbers_are_a_matter_of_training() -> None:
    with pytest.raises(ClimbError, match="not finite: training diverged; lower the learning rate"):
        health(torch.full((9, 4), float("nan")))


def test_embeddings_on_a_line_have_rank_one() -> None:
    line = torch.linspace(-1, 1, 50)[:, None] * torch.ones(50, 8)
    assert health(line).effective_rank < 1.01
    assert health(line).collapsed  # however far apart they are


def test_the_rank_is_by_singular_values_and_not_by_their_squares() -> None:
    axes = torch.eye(2)
    cross = torch.cat([axes, -axes]).repeat_interleave(torch.tensor([4, 1, 4, 1]), dim=0)  # singular values 2 to 1
    entropy = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert health(cross).effective_rank == pytest.approx(math.exp(entropy), abs=1e-4)
