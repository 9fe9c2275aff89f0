"""BYOL: its loss by hand, the moving average, trained and frozen parameters."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from climb.errors import InputError
from climb.nets import Encoded, Network, bottleneck, build_network
from climb.nets.network import initialised
from climb.objectives.byol import BYOL


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def student() -> Network:
    return build_network("micro", 16, generator=generator())


@pytest.fixture
def predictor(student: Network) -> nn.Sequential:
    return bottleneck(student.embedding_dim, 16, generator=generator(3))


def images(n: int = 6, seed: int = 1) -> torch.Tensor:
    return torch.randn(2, n, 3, 16, 16, generator=generator(seed))


def linear(inputs: int, outputs: int) -> nn.Linear:
    return initialised(lambda: nn.Linear(inputs, outputs), torch.Generator().manual_seed(7)).double()


def encode(network: nn.Module, views: torch.Tensor) -> Encoded:
    n = views.shape[1]
    features, embeddings = network(views.flatten(0, 1))
    return Encoded(
        views=views,
        features=features.view(2, n, -1),
        embeddings=embeddings.view(2, n, -1),
        stream_rows=torch.arange(n, device=views.device),
        replay_rows=torch.arange(0, device=views.device),
    )


def disturb(network: nn.Module, seed: int) -> None:
    """Stands for a gradient step: every parameter changes."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator(seed)))


def test_the_loss_by_hand() -> None:
    # Image 0: q(z1) = (3, 4), z2' = (1, 0) and q(z2) = (1, 0), z1' = (0, 5): cosines 0.6 and 0.
    # Image 1: q(z1) = (0, 2), z2' = (0, -1) and q(z2) = (1, 1), z1' = (1, 0): cosines -1 and 1 / sqrt 2.
    predicted = torch.tensor([[[3.0, 4.0], [0.0, 2.0]], [[1.0, 0.0], [1.0, 1.0]]])
    targets = torch.tensor([[[0.0, 5.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, -1.0]]])
    image_0 = (2 - 2 * 0.6) + (2 - 2 * 0)
    image_1 = (2 - 2 * -1) + (2 - 2 * 0.5**0.5)
    assert BYOL.loss(predicted, targets).item() == pytest.approx((image_0 + image_1) / 2, abs=1e-6)


def test_gradient_agrees_with_finite_differences() -> None:
    head = linear(3, 3)
    embeddings, targets = torch.randn(2, 2, 4, 3, dtype=torch.float64, generator=generator()).unbind()
    assert torch.autograd.gradcheck(lambda z: BYOL.loss(head(z), targets), embeddings.requires_grad_())


def test_forward_compares_with_the_momentum_network_on_the_other_view(student: Network) -> None:
    objective = BYOL(student, nn.Identity())
    disturb(objective.momentum, 5)
    teacher = copy.deepcopy(objective.momentum)
    encoded = encode(student, images())
    one, two = teacher(encoded.views.flatten(0, 1))[1].view(2, 6, -1)
    cosine = nn.CosineSimilarity(dim=1)
    first, second = encoded.embeddings
    expected = (2 - 2 * cosine(first, two) + 2 - 2 * cosine(second, one)).mean()
    torch.testing.assert_close(objective(encoded), expected)


def test_follows_the_closed_form(student: Network) -> None:
    decay = 0.9
    objective = BYOL(student, nn.Identity(), decay=decay)
    history = [[p.detach().clone() for p in student.parameters()]]
    for step in range(1, 6):
        disturb(student, step)
        objective.after_step(student)
        history.append([p.detach().clone() for p in student.parameters()])
    for position, parameter in enumerate(objective.momentum.parameters()):
        expected = decay**5 * history[0][position]
        for i in range(1, 6):
            expected = expected + (1 - decay) * decay ** (5 - i) * history[i][position]
        torch.testing.assert_close(parameter, expected, rtol=1e-4, atol=1e-5)


def test_the_default_decay(student: Network) -> None:
    objective = BYOL(student, nn.Identity())
    start = [p.detach().clone() for p in student.parameters()]
    disturb(student, 1)
    objective.after_step(student)
    for old, new, parameter in zip(start, student.parameters(), objective.momentum.parameters(), strict=True):
        torch.testing.assert_close(parameter, 0.99 * old + 0.01 * new)


def test_averages_in_place_and_parameters_only(student: Network) -> None:
    objective = BYOL(student, nn.Identity(), decay=0.5)
    addresses = [p.data_ptr() for p in objective.momentum.parameters()]
    before = {name: buffer.clone() for name, buffer in objective.momentum.named_buffers()}
    encoded = encode(student, 3.0 + images())  # moves the student's running statistics
    objective.after_step(student)
    assert all(torch.equal(before[name], buffer) for name, buffer in objective.momentum.named_buffers())
    assert addresses == [p.data_ptr() for p in objective.momentum.parameters()]
    assert not any(p.requires_grad for p in objective.momentum.parameters())  # no average is kept for a gradient
    objective(encoded)  # in train mode, the momentum network keeps statistics of its own
    assert any(not torch.equal(before[name], buffer) for name, buffer in objective.momentum.named_buffers())


def test_trains_student_and_predictor_and_holds_nothing_of_the_student(
    student: Network, predictor: nn.Sequential
) -> None:
    objective = BYOL(student.eval(), predictor)
    assert all(module.training for module in objective.momentum.modules())
    student.train()
    objective(encode(student, images())).backward()
    assert all(p.grad is not None for p in student.parameters())
    assert all(p.grad is not None and p.grad.any() for p in predictor.parameters())
    assert all(p.grad is None and not p.requires_grad for p in objective.momentum.parameters())
    trained = {name for name, p in objective.named_parameters() if p.requires_grad}
    assert trained == {f"predictor.{name}" for name, _ in predictor.named_parameters()}
    assert not {id(p) for p in student.parameters()} & {id(p) for p in objective.parameters()}
    assert all(p.requires_grad for p in student.parameters())


def test_continues_from_its_state(student: Network, predictor: nn.Sequential) -> None:
    objective = BYOL(student, predictor)
    other = BYOL(build_network("micro", 16, generator=generator(9)), copy.deepcopy(predictor))
    disturb(student, 1)
    objective.after_step(student)
    encoded = encode(student, images())
    assert objective(encoded).item() != pytest.approx(other(encoded).item(), rel=1e-3)
    other.load_state_dict(objective.state_dict())
    assert torch.equal(objective(encoded), other(encoded))


def test_declares_its_forwards(student: Network) -> None:
    objective = BYOL(student, nn.Identity())
    seen: list[int] = []
    objective.momentum.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    objective(encode(student, images(n=5)))
    assert seen == [objective.forwards(5)] == [10]


@pytest.mark.parametrize("decay", [0.0, 1.0])
def test_the_extremes_copy_the_last_step_and_never_move(student: Network, decay: float) -> None:
    objective = BYOL(student, nn.Identity(), decay=decay)
    start = [p.detach().clone() for p in student.parameters()]
    disturb(student, 1)
    objective.after_step(student)
    expected = start if decay else student.parameters()
    assert all(torch.equal(old, new) for old, new in zip(objective.momentum.parameters(), expected, strict=True))


@pytest.mark.parametrize("decay", [-0.1, 1.5, float("nan")])
def test_an_impossible_decay_is_rejected(student: Network, decay: float) -> None:
    with pytest.raises(InputError, match=f"decay is {decay}; allowed: 0"):
        BYOL(student, nn.Identity(), decay=decay)


def test_depends_on_no_value_that_the_host_would_have_to_wait_for(student: Network, predictor: nn.Sequential) -> None:
    """Tensors without values raise wherever Python asks for one."""
    objective = BYOL(student, predictor).to("meta")
    student.to("meta")
    objective(encode(student, torch.empty(2, 5, 3, 16, 16, device="meta"))).backward()
    objective.after_step(student)
