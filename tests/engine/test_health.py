from __future__ import annotations

import torch

from climb.engine.health import health


def test_random_directions_are_healthy_and_one_point_is_not() -> None:
    generator = torch.Generator().manual_seed(0)
    alive = health(torch.randn(200, 16, generator=generator))
    assert 0.9 < alive.spread < 1.1
    assert alive.effective_rank > 14
    assert not alive.collapsed
    point = torch.randn(1, 16, generator=generator) + 1e-4 * torch.randn(200, 16, generator=generator)
    assert health(point).collapsed


def test_embeddings_on_a_line_have_rank_one() -> None:
    line = torch.linspace(-1, 1, 50)[:, None] * torch.ones(50, 8)
    assert health(line).effective_rank < 1.01
