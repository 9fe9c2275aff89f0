"""VICReg: against the definition, one scalar at a time; each term alone; its gradient; its edges."""

from __future__ import annotations

import math

import pytest
import torch

from climb.nets import Encoded
from climb.objectives.vicreg import VICReg

FIRST = [[1.0, 2.0, -0.1], [0.5, -0.3, 0.0], [3.0, 0.1, 0.2], [-1.0, 0.7, 0.4]]
SECOND = [[0.9, 1.5, -2.0], [-0.5, 0.3, 1.0], [2.0, 0.0, 2.5], [0.1, 0.2, -0.3]]


def by_hand(first: list[list[float]], second: list[list[float]], weights: tuple[float, float, float]) -> float:
    n, d = len(first), len(first[0])
    invariance = sum((first[k][i] - second[k][i]) ** 2 for k in range(n) for i in range(d)) / (n * d)
    variance = covariance = 0.0
    for view in (first, second):
        means = [sum(row[i] for row in view) / n for i in range(d)]
        for i in range(d):
            for j in range(d):
                entry = sum((row[i] - means[i]) * (row[j] - means[j]) for row in view) / (n - 1)
                if i == j:
                    variance += max(0.0, 1 - math.sqrt(entry + 1e-4)) / d
                else:
                    covariance += entry**2 / d
    return weights[0] * invariance + weights[1] * variance + weights[2] * covariance


@pytest.mark.parametrize("weights", [(25.0, 25.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)])
def test_equals_the_definition_on_a_small_batch(weights: tuple[float, float, float]) -> None:
    expected = by_hand(FIRST, SECOND, weights)
    assert expected > 0.01  # every term has something to say about this batch
    loss = VICReg(*weights).loss(torch.tensor(FIRST), torch.tensor(SECOND))
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_default_weights() -> None:
    loss = VICReg().loss(torch.tensor(FIRST), torch.tensor(SECOND))
    assert loss.item() == pytest.approx(by_hand(FIRST, SECOND, (25, 25, 1)), rel=1e-5)


def test_gradient_agrees_with_finite_differences() -> None:
    first, second = (torch.tensor(view, dtype=torch.float64, requires_grad=True) for view in (FIRST, SECOND))
    assert torch.autograd.gradcheck(VICReg().loss, (first, second))


def test_nothing_is_left_to_ask_of_equal_views_with_spread_and_independent_dimensions() -> None:
    z = 1.5 * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert VICReg().loss(z, z).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("n", [1, 4])
def test_a_constant_embedding_lacks_all_variance_and_stays_finite(n: int) -> None:
    embeddings = torch.full((n, 3), 2.0, requires_grad=True)
    loss = VICReg().loss(embeddings, embeddings)
    loss.backward()
    assert loss.item() == pytest.approx(25 * 2 * (1 - 0.01))  # sqrt(1e-4) is 0.01
    assert embeddings.grad is not None
    assert torch.isfinite(embeddings.grad).all()


def test_forward_treats_stream_and_replay_rows_equally() -> None:
    embeddings = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    encoded = Encoded(
        views=torch.zeros(2, 5, 3, 8, 8),
        features=torch.zeros(2, 5, 1),
        embeddings=embeddings,
        stream_rows=torch.tensor([1, 3]),
        replay_rows=torch.tensor([0, 2, 4]),
    )
    torch.testing.assert_close(VICReg()(encoded), VICReg().loss(embeddings[0], embeddings[1]))


def test_its_projector_ends_without_a_norm() -> None:
    """Behind one, every variance is one and the variance term has nothing to do."""
    assert VICReg.final_norm is False


def test_depends_on_no_value_that_the_host_would_have_to_wait_for() -> None:
    """Tensors without values raise wherever Python asks for one."""
    first, second = torch.empty(2, 5, 6, device="meta", requires_grad=True)
    VICReg().loss(first, second).backward()
