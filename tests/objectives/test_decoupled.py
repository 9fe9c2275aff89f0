"""SimCLR's contrast without its positive in the denominator."""

from __future__ import annotations

import math

import pytest
import torch

from climb.nets import Encoded
from climb.objectives import DecoupledContrast


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


def test_the_default_temperature() -> None:
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
