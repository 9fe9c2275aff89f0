"""Osiris: its three losses scalar by scalar, its second head, and its rows."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from climb.errors import ClimbError, InputError
from climb.nets import Encoded, build_network, projector
from climb.nets.network import initialised
from climb.objectives.osiris import Osiris
from climb.objectives.simclr import SimCLR

Vector = list[float]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator(seed))


def linear(inputs: int, outputs: int) -> nn.Linear:
    return initialised(lambda: nn.Linear(inputs, outputs), torch.Generator().manual_seed(7)).double()


def encode(features: torch.Tensor, embeddings: torch.Tensor, replay: list[int]) -> Encoded:
    n = features.shape[1]
    return Encoded(
        views=torch.zeros(2, n, 3, 8, 8),
        features=features,
        embeddings=embeddings,
        stream_rows=torch.tensor([row for row in range(n) if row not in replay], dtype=torch.int64),
        replay_rows=torch.tensor(replay, dtype=torch.int64),
    )


def cosine(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def contrast(anchor: Vector, positive: Vector, negatives: list[Vector], temperature: float) -> float:
    wanted = math.exp(cosine(anchor, positive) / temperature)
    return -math.log(wanted / (wanted + sum(math.exp(cosine(anchor, b) / temperature) for b in negatives)))


def nt_xent(views: list[list[Vector]], temperature: float) -> float:
    n = len(views[0])
    total = 0.0
    for v in range(2):
        for i in range(n):
            negatives = [views[w][j] for w in range(2) for j in range(n) if j != i]
            total += contrast(views[v][i], views[1 - v][i], negatives, temperature)
    return total / (2 * n)


def apart(anchors: list[list[Vector]], others: list[list[Vector]], temperature: float) -> float:
    n = len(anchors[0])
    total = sum(
        contrast(anchors[v][i], anchors[1 - v][i], others[0] + others[1], temperature)
        for v in range(2)
        for i in range(n)
    )
    return total / (2 * n)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_equals_the_definition_on_a_small_batch(temperature: float) -> None:
    features, embeddings = random(2, 5, 3), random(2, 5, 4, seed=1)
    replay, stream = [3, 0, 1], [2, 4]
    head = linear(3, 4)
    h = head(features).detach()
    present, past = h[:, stream].tolist(), h[:, replay].tolist()
    expected = nt_xent(embeddings[:, stream].tolist(), temperature) + 0.5 * (
        0.5 * (apart(present, past, temperature) + apart(past, present, temperature)) + nt_xent(past, temperature)
    )
    loss = Osiris(head, temperature)(encode(features, embeddings, replay))
    assert loss.item() == pytest.approx(expected, rel=1e-9)


def test_the_default_temperature() -> None:
    encoded, head = encode(random(2, 5, 3), random(2, 5, 4, seed=1), [3, 0, 1]), linear(3, 4)
    assert torch.equal(Osiris(head)(encoded), Osiris(head, temperature=0.1)(encoded))


def test_a_worked_example_of_the_cross_loss() -> None:
    # One image each; its two views agree, present and past are orthogonal. L_cur and L_past have no negatives: 0.
    # Each anchor: positive e^1, two negatives e^0, so L_cross = log(1 + 2/e) and L half of it.
    present, past = [1.0, 0.0], [0.0, 1.0]
    features = torch.tensor([[present, past], [present, past]])
    loss = Osiris(nn.Identity(), temperature=1.0)(encode(features, features, [1]))
    assert loss.item() == pytest.approx(0.5 * math.log(1 + 2 / math.e), rel=1e-6)


def test_gradient_agrees_with_finite_differences() -> None:
    head = linear(3, 4)
    objective = Osiris(head, temperature=0.5)

    def loss(features: torch.Tensor, embeddings: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return objective(encode(features, embeddings, [0, 3]))

    inputs = (random(2, 4, 3).requires_grad_(), random(2, 4, 4, seed=1).requires_grad_(), head.weight)
    assert torch.autograd.gradcheck(loss, inputs)


def test_before_replay_only_the_present_counts_and_the_head_rests() -> None:
    head = projector(3, 8, 4, generator=generator())
    before = copy.deepcopy(head.state_dict())
    embeddings = random(2, 4, 4).float().requires_grad_()
    loss = Osiris(head, temperature=0.3)(encode(random(2, 4, 3).float(), embeddings, []))
    torch.testing.assert_close(loss, SimCLR(0.3).loss(embeddings[0], embeddings[1]))
    loss.backward()
    assert all(p.grad is None for p in head.parameters())
    assert all(torch.equal(before[name], value) for name, value in head.state_dict().items())


def test_the_projector_learns_from_stream_rows_the_head_from_all() -> None:
    features, embeddings = random(2, 6, 3).requires_grad_(), random(2, 6, 4, seed=1).requires_grad_()
    Osiris(linear(3, 4))(encode(features, embeddings, [0, 2, 5])).backward()
    assert features.grad is not None
    assert embeddings.grad is not None
    assert (features.grad.abs().sum((0, 2)) > 0).all()
    assert (embeddings.grad.abs().sum((0, 2)) > 0).tolist() == [False, True, False, True, True, False]


def test_the_place_of_rows_does_not_matter() -> None:
    features, embeddings = random(2, 6, 3), random(2, 6, 4, seed=1)
    objective = Osiris(projector(3, 8, 4, generator=generator()).double())
    expected = objective(encode(features, embeddings, [3, 4, 5])).item()
    order = [4, 0, 5, 1, 2, 3]
    assert objective(encode(features[:, order], embeddings[:, order], [0, 2, 5])).item() == pytest.approx(expected)


def test_the_head_sees_all_rows_in_one_call() -> None:
    """So that its batch norms do not centre present and past apart."""
    head = projector(3, 8, 4, generator=generator())
    calls: list[torch.Size] = []
    head.register_forward_pre_hook(lambda _, inputs: calls.append(inputs[0].shape))
    Osiris(head)(encode(random(2, 6, 3).float(), random(2, 6, 4, seed=1).float(), [3, 4, 5]))
    assert calls == [torch.Size([12, 3])]


def test_the_head_is_trained_once_and_starts_as_the_projector() -> None:
    student = build_network("micro", 16, generator=generator())
    head = projector(student.feature_dim, 128, student.embedding_dim, generator=generator(1))
    objective = Osiris(head)
    student(torch.randn(8, 3, 16, 16, generator=generator(2)))  # moves the projector's running statistics
    addresses = [p.data_ptr() for p in head.parameters()]
    objective.on_first_replay(student)
    copied, projected = head.state_dict(), student.projector.state_dict()
    assert copied.keys() == projected.keys()
    assert all(torch.equal(copied[name], projected[name]) for name in copied)
    assert addresses == [p.data_ptr() for p in head.parameters()]  # in place
    assert all(p.requires_grad for p in head.parameters())
    assert len(list(objective.parameters())) == len(list(head.parameters()))
    assert not {id(p) for p in objective.parameters()} & {id(p) for p in student.parameters()}

    views = torch.randn(2, 6, 3, 16, 16, generator=generator(3))
    features, embeddings = (out.view(2, 6, -1) for out in student(views.flatten(0, 1)))
    objective(encode(features, embeddings, [3, 4, 5])).backward()
    assert all(p.grad is not None and p.grad.any() for p in objective.parameters())
    assert all(p.grad is not None for p in student.parameters())


def test_a_head_that_differs_from_the_projector_is_rejected() -> None:
    student = build_network("micro", 16, generator=generator())
    objective = Osiris(projector(student.feature_dim, 32, 16, generator=generator(1)))
    with pytest.raises(ClimbError, match="must have the layers of the network's projector"):
        objective.on_first_replay(student)


def test_bad_input_is_rejected() -> None:
    with pytest.raises(InputError, match="temperature is 0; allowed: above 0"):
        Osiris(nn.Identity(), temperature=0)
    features = random(2, 3, 4)
    with pytest.raises(InputError, match="replay rows only"):
        Osiris(nn.Identity())(encode(features, features, [0, 1, 2]))


def test_is_finite_at_a_temperature_whose_exponentials_overflow() -> None:
    features = random(2, 6, 4).float().requires_grad_()
    loss = Osiris(nn.Identity(), temperature=1e-4)(encode(features, features, [0, 1, 2]))
    loss.backward()
    assert features.grad is not None
    assert torch.isfinite(features.grad).all()


def test_depends_on_no_value_that_the_host_would_have_to_wait_for() -> None:
    """Tensors without values raise wherever Python asks for one."""
    objective = Osiris(projector(3, 8, 4, generator=generator())).to("meta")
    for replay in (0, 2):
        encoded = Encoded(
            views=torch.empty(2, 5, 3, 8, 8, device="meta"),
            features=torch.empty(2, 5, 3, device="meta", requires_grad=True),
            embeddings=torch.empty(2, 5, 4, device="meta", requires_grad=True),
            stream_rows=torch.empty(5 - replay, dtype=torch.int64, device="meta"),
            replay_rows=torch.empty(replay, dtype=torch.int64, device="meta"),
        )
        objective(encoded).backward()
