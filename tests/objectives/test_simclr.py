"""SimCLR's loss: against a sum written out by hand, its gradient, its edges."""

from __future__ import annotations

import math

import pytest
import torch

from climb.nets import Encoded
from climb.objectives import DecoupledContrast, Objective, SimCLR


def by_hand(first: list[list[float]], second: list[list[float]], temperature: float) -> float:
    """NT-Xent as the definition reads, one scalar at a time."""
    views = [*first, *second]
    n = len(first)

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)

    total = 0.0
    for i, view in enumerate(views):
        weights = {j: math.exp(cosine(view, other) / temperature) for j, other in enumerate(views) if j != i}
        total -= math.log(weights[(i + n) % (2 * n)] / sum(weights.values()))
    return total / (2 * n)


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
def test_equals_the_definition_on_a_small_batch(temperature: float) -> None:
    first = [[1.0, 2.0, -1.0], [0.5, -0.3, 0.0], [3.0, 0.1, 2.0]]
    second = [[0.9, 1.5, -2.0], [-0.5, 0.3, 1.0], [2.0, 0.0, 2.5]]
    loss = SimCLR(temperature).loss(torch.tensor(first), torch.tensor(second))
    assert loss.item() == pytest.approx(by_hand(first, second, temperature), rel=1e-5)


def test_the_default_temperature() -> None:
    first, second = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(SimCLR().loss(first, second), SimCLR(0.5).loss(first, second))


def test_gradient_agrees_with_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(4, 5, dtype=torch.float64, generator=generator, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(SimCLR(0.5).loss, (first, second))


def test_does_not_depend_on_the_length_of_an_embedding() -> None:
    first, second = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
    objective = SimCLR(0.5)
    torch.testing.assert_close(objective.loss(7.0 * first, 0.01 * second), objective.loss(first, second))


def test_is_finite_at_a_temperature_whose_exponentials_overflow() -> None:
    first, second = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1)).unbind()
    first.requires_grad_()
    temperature = 1e-4  # exp(1 / temperature) is far beyond float32
    loss = SimCLR(temperature).loss(first, second)
    loss.backward()
    assert torch.isfinite(loss)
    assert first.grad is not None
    assert torch.isfinite(first.grad).all()
    # In this limit only the nearest other view counts: the loss is its lead over the positive, over the temperature.
    unit = torch.nn.functional.normalize(torch.cat([first.detach(), second]), dim=1)
    similar = (unit @ unit.T).fill_diagonal_(-2)
    lead = similar.max(1).values - similar[torch.arange(12), torch.arange(12).roll(6)]
    assert loss.item() == pytest.approx(lead.mean().item() / temperature, rel=1e-3)


def test_one_image_has_no_negatives_and_no_loss() -> None:
    first, second = torch.randn(2, 1, 4, generator=torch.Generator().manual_seed(0))
    assert SimCLR().loss(first, second).item() == 0.0


def test_forward_treats_stream_and_replay_rows_equally() -> None:
    embeddings = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))

    def loss(order: list[int], replay: list[int]) -> float:
        rows = torch.tensor(order)
        encoded = Encoded(
            views=torch.zeros(2, 5, 3, 8, 8),
            features=torch.zeros(2, 5, 1),
            embeddings=embeddings[:, rows],
            stream_rows=torch.tensor([row for row in range(5) if row not in replay]),
            replay_rows=torch.tensor(replay),
        )
        return float(SimCLR(0.5)(encoded))

    expected = SimCLR(0.5).loss(embeddings[0], embeddings[1]).item()
    assert loss([0, 1, 2, 3, 4], [3, 4]) == pytest.approx(expected)
    assert loss([3, 0, 4, 2, 1], [0, 2]) == pytest.approx(expected)


def test_an_objective_without_a_loss_says_what_it_lacks() -> None:
    class Empty(Objective):
        pass

    with pytest.raises(TypeError, match=r"Empty must define forward\(encoded\)"):
        Empty()(None)


def test_the_loss_of_a_batch_by_hand() -> None:
    first = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    second = torch.tensor([[0.6, 0.8], [0.0, 1.0]])
    # Cosines: of the positives .6 and 1. Negatives of a1: b1 0, b2 0; of b1: a1 0, a2 .8; of a2: b1 .8, b2 .8;
    # of b2: a1 0, a2 .8; all divided by T = 0.5.
    low = math.log(1 + math.exp(1.6))
    a1, b1 = -1.2 + math.log(2), -2 + low
    a2, b2 = -1.2 + 1.6 + math.log(2), -2 + low
    expected = (a1 + b1 + a2 + b2) / 4
    assert DecoupledContrast(0.5).loss(first, second).item() == pytest.approx(expected, abs=1e-6)


def test_the_gradient_of_the_loss_by_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 4, 5, generator=generator, dtype=torch.float64).requires_grad_().unbind()
    assert torch.autograd.gradcheck(DecoupledContrast(0.5).loss, (first, second))


def test_the_default_temperature_of_the_decoupled_loss() -> None:
    first, second = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
    assert torch.equal(DecoupledContrast().loss(first, second), DecoupledContrast(0.5).loss(first, second))


def test_forward_holds_the_two_views_of_a_batch_against_each_other() -> None:
    embeddings = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    encoded = Encoded(
        views=torch.zeros(2, 5, 3, 8, 8),
        features=torch.zeros(2, 5, 1),
        embeddings=embeddings,
        stream_rows=torch.arange(5),
        replay_rows=torch.arange(0),
    )
    objective = DecoupledContrast(0.5)
    assert torch.equal(objective(encoded), objective.loss(embeddings[0], embeddings[1]))
