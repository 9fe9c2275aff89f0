"""Barlow Twins: against the definition, one scalar at a time; its gradient; its edges."""

from __future__ import annotations

import math

import pytest
import torch

from climb.nets import Encoded
from climb.objectives.barlow_twins import BarlowTwins

FIRST = [[1.0, 2.0, -1.0], [0.5, -0.3, 0.0], [3.0, 0.1, 2.0], [-1.0, 0.7, 0.4]]
SECOND = [[0.9, 1.5, -2.0], [-0.5, 0.3, 1.0], [2.0, 0.0, 2.5], [0.1, 0.2, -0.3]]


def by_hand(first: list[list[float]], second: list[list[float]], off_diagonal: float, scale: float) -> float:
    n, d = len(first), len(first[0])

    def standardised(view: list[list[float]], dimension: int) -> list[float]:
        values = [row[dimension] for row in view]
        mean = sum(values) / n
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / n + 1e-5)
        return [(value - mean) / deviation for value in values]

    total = 0.0
    for i in range(d):
        for j in range(d):
            pairs = zip(standardised(first, i), standardised(second, j), strict=True)
            c = sum(a * b for a, b in pairs) / n
            total += (c - 1) ** 2 if i == j else off_diagonal * c**2
    return scale * total


@pytest.mark.parametrize(("off_diagonal", "scale"), [(0.005, 0.1), (0.5, 1.0)])
def test_equals_the_definition_on_a_small_batch(off_diagonal: float, scale: float) -> None:
    loss = BarlowTwins(off_diagonal, scale).loss(torch.tensor(FIRST), torch.tensor(SECOND))
    assert loss.item() == pytest.approx(by_hand(FIRST, SECOND, off_diagonal, scale), rel=1e-5)


def test_a_worked_example() -> None:
    # Two uncorrelated dimensions of variance 1. In the other view the first is the same and the second is the first:
    # C = [[1, 1], [0, 0]], so the diagonal costs (0 - 1)^2 and the rest 0.005 * 1^2.
    first = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    second = first[:, [0, 0]]
    assert BarlowTwins().loss(first, second).item() == pytest.approx(0.1 * (1 + 0.005), abs=1e-5)


def test_gradient_agrees_with_finite_differences() -> None:
    first, second = (torch.tensor(view, dtype=torch.float64, requires_grad=True) for view in (FIRST, SECOND))
    assert torch.autograd.gradcheck(BarlowTwins().loss, (first, second))
    assert torch.autograd.gradcheck(BarlowTwins(0.7, 1.0).loss, (first, second))


def test_standardises_by_itself_so_the_projector_must_not() -> None:
    first, second = torch.randn(2, 8, 4, generator=torch.Generator().manual_seed(0))
    objective = BarlowTwins()
    moved = objective.loss(7 * first + 3, 50 * second - 1)
    torch.testing.assert_close(moved, objective.loss(first, second), rtol=1e-3, atol=1e-4)
    assert BarlowTwins.final_norm is False


def test_forward_treats_stream_and_replay_rows_equally() -> None:
    embeddings = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    encoded = Encoded(
        views=torch.zeros(2, 5, 3, 8, 8),
        features=torch.zeros(2, 5, 1),
        embeddings=embeddings,
        stream_rows=torch.tensor([1, 3]),
        replay_rows=torch.tensor([0, 2, 4]),
    )
    torch.testing.assert_close(BarlowTwins()(encoded), BarlowTwins().loss(embeddings[0], embeddings[1]))


@pytest.mark.parametrize("n", [1, 4])
def test_a_constant_embedding_costs_the_whole_diagonal_and_stays_finite(n: int) -> None:
    embeddings = torch.full((n, 3), 2.0, requires_grad=True)
    loss = BarlowTwins().loss(embeddings, embeddings)
    loss.backward()
    assert loss.item() == pytest.approx(0.1 * 3)
    assert embeddings.grad is not None
    assert torch.isfinite(embeddings.grad).all()


def test_depends_on_no_value_that_the_host_would_have_to_wait_for() -> None:
    """Tensors without values raise wherever Python asks for one."""
    first, second = torch.empty(2, 5, 6, device="meta", requires_grad=True)
    BarlowTwins().loss(first, second).backward()
