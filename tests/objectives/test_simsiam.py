"""SimSiam: its loss by hand, where gradients stop, what is trained."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from climb.nets import Encoded, bottleneck
from climb.nets.network import initialised
from climb.objectives.simsiam import SimSiam


def linear(inputs: int, outputs: int) -> nn.Linear:
    return initialised(lambda: nn.Linear(inputs, outputs), torch.Generator().manual_seed(7)).double()


def encode(embeddings: torch.Tensor) -> Encoded:
    n = embeddings.shape[1]
    return Encoded(
        views=torch.zeros(2, n, 3, 8, 8),
        features=torch.zeros(2, n, 1),
        embeddings=embeddings,
        stream_rows=torch.arange(n),
        replay_rows=torch.arange(0),
    )


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_loss_by_hand() -> None:
    # Image 0: q(z1) = (3, 4), z2 = (1, 0) and q(z2) = (1, 0), z1 = (0, 5): cosines 0.6 and 0.
    # Image 1: q(z1) = (0, 2), z2 = (0, -1) and q(z2) = (1, 1), z1 = (1, 0): cosines -1 and 1 / sqrt 2.
    predicted = torch.tensor([[[3.0, 4.0], [0.0, 2.0]], [[1.0, 0.0], [1.0, 1.0]]])
    embeddings = torch.tensor([[[0.0, 5.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, -1.0]]])
    expected = (-0.5 * (0.6 + 0) - 0.5 * (-1 + 0.5**0.5)) / 2
    assert SimSiam.loss(predicted, embeddings).item() == pytest.approx(expected, abs=1e-6)


def test_forward_predicts_the_other_view() -> None:
    predictor = linear(3, 3)
    embeddings = random(2, 4, 3)
    cosine = nn.CosineSimilarity(dim=1)
    one, two = embeddings
    expected = -(cosine(predictor(one), two) + cosine(predictor(two), one)).mean() / 2
    torch.testing.assert_close(SimSiam(predictor)(encode(embeddings)), expected)


def test_gradient_agrees_with_finite_differences() -> None:
    predictor, targets = linear(3, 3), random(2, 4, 3, seed=1)

    def loss(embeddings: torch.Tensor) -> torch.Tensor:
        return SimSiam.loss(predictor(embeddings), targets)

    assert torch.autograd.gradcheck(loss, random(2, 4, 3).requires_grad_())


def test_no_gradient_passes_through_the_targets() -> None:
    predictor = linear(3, 3)
    embeddings = random(2, 4, 3).requires_grad_()
    (given,) = torch.autograd.grad(SimSiam(predictor)(encode(embeddings)), embeddings)
    (expected,) = torch.autograd.grad(SimSiam.loss(predictor(embeddings), embeddings.detach().clone()), embeddings)
    torch.testing.assert_close(given, expected)
    targets = random(2, 4, 3, seed=1).requires_grad_()
    assert not SimSiam.loss(embeddings.detach(), targets).requires_grad


def test_the_predictor_is_trained_and_sees_both_views_at_once() -> None:
    predictor = bottleneck(6, 4, generator=torch.Generator().manual_seed(0))
    objective = SimSiam(predictor)
    calls: list[torch.Size] = []
    predictor.register_forward_pre_hook(lambda _, inputs: calls.append(inputs[0].shape))
    objective(encode(random(2, 5, 6).float())).backward()
    assert calls == [torch.Size([10, 6])]
    assert all(p.grad is not None and p.grad.any() for p in predictor.parameters())
    assert objective.final_norm
    assert objective.forwards(10) == 0


def test_depends_on_no_value_that_the_host_would_have_to_wait_for() -> None:
    """Tensors without values raise wherever Python asks for one."""
    predictor = bottleneck(6, 4, generator=torch.Generator().manual_seed(0))
    encoded = encode(torch.empty(2, 5, 6, device="meta", requires_grad=True))
    SimSiam(predictor).to("meta")(encoded).backward()
