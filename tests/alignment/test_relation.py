"""Relation distillation: the loss by hand, its weight, and the past network."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from climb.alignment.relation import Relation
from climb.nets import Encoded, Network


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Picked(nn.Module):
    """Embeds an image as its first two pixels, for losses that can be worked out by hand."""

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        flat = images.flatten(1)[:, :2]
        return flat, flat


def encode(network: nn.Module, views: torch.Tensor, replay: list[int]) -> Encoded:
    n = views.shape[1]
    features, embeddings = network(views.flatten(0, 1))
    return Encoded(
        views=views,
        features=features.view(2, n, -1),
        embeddings=embeddings.view(2, n, -1),
        stream_rows=torch.tensor([row for row in range(n) if row not in replay], dtype=torch.int64),
        replay_rows=torch.tensor(replay, dtype=torch.int64),
    )


def by_hand(past: list[list[float]], present: list[list[float]], past_temperature: float, temperature: float) -> float:
    """The relation loss, one number after another."""

    def cosine(a: list[float], b: list[float]) -> float:
        return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    total = 0.0
    for i in range(len(past)):
        others = [j for j in range(len(past)) if j != i]
        p = [math.exp(cosine(past[i], past[j]) / past_temperature) for j in others]
        q = [math.exp(cosine(present[i], present[j]) / temperature) for j in others]
        total -= sum(a / sum(p) * math.log(b / sum(q)) for a, b in zip(p, q, strict=True))
    return total / len(past)


PAST = [[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]]
PRESENT = [[2.0, 1.0], [-1.0, 1.0], [0.0, 5.0]]


def small(dtype: torch.dtype = torch.float32) -> Encoded:
    views = torch.zeros(2, 3, 3, 8, 8, dtype=dtype)
    views[0, :, 0, 0, :2] = torch.tensor(PAST)
    views[1] = 7.0  # second views have no part in it
    embeddings = torch.stack([torch.tensor(PRESENT), torch.full((3, 2), 9.0)]).to(dtype)
    return Encoded(
        views=views,
        features=embeddings,
        embeddings=embeddings,
        stream_rows=torch.tensor([0]),
        replay_rows=torch.tensor([1, 2]),
    )


def test_the_loss_by_hand() -> None:
    alignment = Relation(Picked(), past_temperature=0.5, temperature=0.8)
    alignment.weight.fill_(1.0)
    expected = by_hand(PAST, PRESENT, 0.5, 0.8)
    assert alignment(small(), torch.tensor(4.0)).item() == pytest.approx(expected, rel=1e-5)


def test_the_loss_by_arithmetic() -> None:
    """Three orthogonal-or-equal rows: with e = exp(1 / T), the pair sees e / (e + 1), the odd one out 1/2 and 1/2."""
    views = torch.zeros(2, 3, 3, 8, 8)
    views[:, :, 0, 0, :2] = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    alignment = Relation(Picked(), past_temperature=0.01, temperature=1.0)
    alignment.weight.fill_(1.0)
    # p is (1, 0) for the pair to within exp(-100); q is (e, 1) / (e + 1), and a half each for the third.
    expected = (2 * math.log(1 + math.exp(-1)) + math.log(2)) / 3
    loss = alignment(encode(Picked(), views, []), torch.tensor(4.0))
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_the_weight_is_set_in_the_first_batch_and_kept() -> None:
    alignment = Relation(Picked(), power=0.15)
    assert alignment.weight.isnan()
    relation = by_hand(PAST, PRESENT, 0.01, 0.1)
    assert alignment(small(), torch.tensor(4.0)).item() == pytest.approx(0.15 * 4.0, rel=1e-5)
    assert alignment.weight.item() == pytest.approx(0.15 * 4.0 / relation, rel=1e-4)
    # Another mini-batch, another objective, the same weight.
    alignment.before_batch(Picked())
    assert alignment(small(), torch.tensor(1.0)).item() == pytest.approx(0.15 * 4.0, rel=1e-5)
    fresh = Relation(Picked(), power=0.15)
    fresh.load_state_dict(alignment.state_dict())
    assert fresh(small(), torch.tensor(9.0)).item() == pytest.approx(0.15 * 4.0, rel=1e-5)


def test_a_negative_objective_does_not_push_relations_apart() -> None:
    assert Relation(Picked())(small(), torch.tensor(-0.8)).item() == pytest.approx(0.15 * 0.8, rel=1e-5)


@pytest.mark.parametrize("rows", [1, 2])
def test_too_few_images_have_no_relations_and_set_no_weight(rows: int) -> None:
    alignment = Relation(Picked())
    encoded = encode(Picked(), torch.randn(2, rows, 3, 8, 8, generator=generator()), [])
    assert alignment(encoded, torch.tensor(4.0)).item() == 0
    assert alignment.weight.isnan()
    assert alignment.forwards(rows, 0) == 0  # the past network is not asked
    assert alignment.forwards(3, 0) == 3


def test_a_broken_first_objective_leaves_the_weight_to_the_next_batch() -> None:
    alignment = Relation(Picked())
    assert alignment(small(), torch.tensor(math.inf)).item() == 0
    assert alignment(small(), torch.tensor(4.0)).item() == pytest.approx(0.6, rel=1e-5)


def test_the_gradient_by_finite_differences() -> None:
    alignment = Relation(Picked())
    alignment.weight.fill_(0.7)
    fixed = small(torch.float64)

    def loss(embeddings: torch.Tensor) -> torch.Tensor:
        encoded = Encoded(
            views=fixed.views,
            features=embeddings,
            embeddings=embeddings,
            stream_rows=fixed.stream_rows,
            replay_rows=fixed.replay_rows,
        )
        value: torch.Tensor = alignment(encoded, torch.tensor(4.0))
        return value

    embeddings = fixed.embeddings.clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, (embeddings,))


def test_covers_stream_rows_and_replay_rows_in_any_order(student: Network) -> None:
    alignment = Relation(student)
    alignment.weight.fill_(1.0)
    views = torch.randn(2, 6, 3, 16, 16, generator=generator(1))
    encoded = encode(student, views, [3, 4, 5])
    embeddings = encoded.embeddings.detach().requires_grad_()
    loss = alignment(
        Encoded(
            views=views,
            features=encoded.features,
            embeddings=embeddings,
            stream_rows=encoded.stream_rows,
            replay_rows=encoded.replay_rows,
        ),
        torch.tensor(1.0),
    )
    loss.backward()
    assert embeddings.grad is not None
    assert (embeddings.grad[0].abs().amax(dim=1) > 0).all()
    assert (embeddings.grad[1] == 0).all()
    order = torch.tensor([5, 0, 3, 1, 4, 2])
    shuffled = Encoded(
        views=views[:, order],
        features=encoded.features[:, order],
        embeddings=encoded.embeddings[:, order],
        stream_rows=torch.tensor([1, 3, 5]),
        replay_rows=torch.tensor([0, 2, 4]),
    )
    assert alignment(shuffled, torch.tensor(1.0)).item() == pytest.approx(loss.item(), rel=1e-4)


def test_the_past_is_the_network_before_the_mini_batch_not_before_the_pass(student: Network) -> None:
    alignment = Relation(student).train()
    addresses = [t.data_ptr() for t in (*alignment.parameters(), *alignment.buffers())]
    views = 3.0 + torch.randn(2, 6, 3, 16, 16, generator=generator(1))
    student(views.flatten(0, 1))  # moves the running statistics
    alignment.before_batch(student)
    start = {name: tensor.clone() for name, tensor in student.state_dict().items()}
    for _ in range(3):
        alignment(encode(student, views, []), torch.tensor(1.0))
        with torch.no_grad():
            for parameter in student.parameters():
                parameter.add_(0.1)
        alignment.after_step(student)
    alignment.after_batch(student)
    # Buffers too: put in train mode with the rest, it runs in eval mode all the same and keeps its statistics.
    past = alignment.past.state_dict()
    assert all(torch.equal(start[name], past[name]) for name in start)
    assert not any(torch.equal(past[name], tensor) for name, tensor in student.state_dict().items())
    alignment.before_batch(student)
    assert all(torch.equal(past[name], tensor) for name, tensor in student.state_dict().items())
    assert [t.data_ptr() for t in (*alignment.parameters(), *alignment.buffers())] == addresses


def test_uses_running_statistics_in_every_mode(student: Network) -> None:
    alignment = Relation(student)
    assert not any(module.training for module in alignment.past.modules())  # before anyone puts it in a mode, too
    assert alignment.train().training
    assert not any(module.training for module in alignment.past.modules())
    views = torch.randn(2, 6, 3, 16, 16, generator=generator(1))
    alignment(encode(student, views, []), torch.tensor(1.0))
    with torch.no_grad():
        _, among_six = alignment.past(views[0])
        _, alone = alignment.past(views[0, :1])
    torch.testing.assert_close(among_six[:1], alone, rtol=1e-4, atol=1e-5)


def test_trains_nothing_of_its_own_and_nothing_twice(student: Network) -> None:
    alignment = Relation(student)
    assert not any(p.requires_grad for p in alignment.parameters())
    assert not {id(p) for p in alignment.parameters()} & {id(p) for p in student.parameters()}
    alignment(encode(student, torch.randn(2, 6, 3, 16, 16, generator=generator(1)), []), torch.tensor(1.0)).backward()
    assert all(p.grad is not None for p in student.parameters())
    assert all(p.grad is None for p in alignment.parameters())


def test_similarities_keep_full_precision_under_autocast() -> None:
    """Two embeddings that bfloat16 cannot tell apart from a third must still be told apart."""
    views = torch.zeros(2, 3, 3, 8, 8)
    near = [[1.0, 0.0], [math.cos(0.05), math.sin(0.05)], [math.cos(0.07), math.sin(0.07)]]
    views[:, :, 0, 0, :2] = torch.tensor(near)
    alignment = Relation(Picked())
    alignment.weight.fill_(1.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = alignment(encode(Picked(), views, []), torch.tensor(1.0))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(by_hand(near, near, 0.01, 0.1), rel=1e-4)


def test_says_what_it_needs(student: Network) -> None:
    alignment = Relation(student)
    assert not alignment.needs_replay
    assert not alignment.needs_boundaries
    assert alignment.forwards(138, 128) == 138
    seen: list[int] = []
    alignment.past.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    alignment(encode(student, torch.randn(2, 6, 3, 16, 16, generator=generator(1)), [4, 5]), torch.tensor(1.0))
    assert seen == [alignment.forwards(6, 2)]
    assert alignment.teacher is None
