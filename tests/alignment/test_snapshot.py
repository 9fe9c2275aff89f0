"""The snapshot: silent in the first task, then the network of the last boundary, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from climb.alignment.snapshot import Snapshot
from climb.nets import Encoded, Network, bottleneck

NO_OBJECTIVE = torch.tensor(0.0)  # the loss does not depend on it


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Scaled(nn.Module):
    """Embeds an image as its first two pixels, each times a weight: for losses that can be worked out by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        flat = self.scale * images.flatten(1)[:, :2]
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


def pixels(values: list[list[list[float]]]) -> torch.Tensor:
    views = torch.zeros(2, len(values[0]), 3, 8, 8)
    views[:, :, 0, 0, :2] = torch.tensor(values)
    return views


def test_the_loss_by_hand() -> None:
    network = Scaled()
    alignment = Snapshot(network, nn.Identity())
    views = pixels([[[5.0, 5.0], [1.0, 0.0], [1.0, 1.0]], [[5.0, -5.0], [2.0, 1.0], [0.0, 3.0]]])
    with torch.no_grad():
        network.scale.copy_(torch.tensor([1.0, 2.0]))
    alignment.on_boundary(network)
    with torch.no_grad():
        network.scale.copy_(torch.tensor([1.0, 0.0]))
    # student (1,0) (1,0) (2,0) (0,0) against the snapshot's (1,0) (1,2) (2,2) (0,6)
    expected = -(1 + 1 / 5**0.5 + 1 / 2**0.5 + 0) / 4
    assert alignment(encode(network, views, [1, 2]), NO_OBJECTIVE).item() == pytest.approx(expected, abs=1e-6)


def test_the_first_task_distils_from_nothing(student: Network) -> None:
    aligner = bottleneck(student.embedding_dim, 16, generator=generator(3))
    alignment = Snapshot(student, aligner)
    views = torch.randn(2, 6, 3, 16, 16, generator=generator(1))
    encoded = encode(student, views, [2, 3, 4, 5])
    loss = alignment(encoded, NO_OBJECTIVE)
    assert loss.item() == 0
    loss.backward()  # a loss all the same, so that no step differs in shape
    assert all(p.grad is not None and p.grad.abs().max() == 0 for p in aligner.parameters())
    alignment.on_boundary(student)
    alignment(encode(student, views, [2, 3, 4, 5]), NO_OBJECTIVE).backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in aligner.parameters())
    assert all(p.grad is None and not p.requires_grad for p in alignment.snapshot.parameters())


def test_a_boundary_copies_parameters_and_buffers_in_place(student: Network) -> None:
    alignment = Snapshot(student, nn.Identity())
    addresses = [t.data_ptr() for t in (*alignment.parameters(), *alignment.buffers())]
    student(3.0 + torch.randn(6, 3, 16, 16, generator=generator(1)))  # moves the running statistics
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(1.0)
    before = {name: tensor.clone() for name, tensor in alignment.snapshot.state_dict().items()}
    for hook in (alignment.before_batch, alignment.after_step, alignment.after_batch):
        hook(student)
    assert all(torch.equal(before[name], tensor) for name, tensor in alignment.snapshot.state_dict().items())
    alignment.on_boundary(student)
    now = student.state_dict()
    assert all(torch.equal(now[name], tensor) for name, tensor in alignment.snapshot.state_dict().items())
    assert not any(torch.equal(before[name], now[name]) for name in now)
    assert [t.data_ptr() for t in (*alignment.parameters(), *alignment.buffers())] == addresses


def test_the_snapshot_normalises_by_its_own_batch(student: Network) -> None:
    alignment = Snapshot(student, bottleneck(student.embedding_dim, 16, generator=generator(3))).train()
    alignment.on_boundary(student)
    before = {name: tensor.clone() for name, tensor in alignment.snapshot.named_buffers()}
    assert before
    alignment(encode(student, torch.randn(2, 6, 3, 16, 16, generator=generator(1)), [2, 3, 4, 5]), NO_OBJECTIVE)
    assert not any(torch.equal(before[name], now) for name, now in alignment.snapshot.named_buffers())


def test_the_gradient_by_finite_differences() -> None:
    network = Scaled().double()
    alignment = Snapshot(network, nn.Linear(2, 2)).double()
    alignment.on_boundary(network)
    views = torch.randn(2, 3, 3, 8, 8, generator=generator(1), dtype=torch.float64)

    def loss(embeddings: torch.Tensor) -> torch.Tensor:
        encoded = Encoded(
            views=views,
            features=embeddings,
            embeddings=embeddings,
            stream_rows=torch.tensor([1]),
            replay_rows=torch.tensor([2, 0]),
        )
        value: torch.Tensor = alignment(encoded, NO_OBJECTIVE)
        return value

    embeddings = torch.randn(2, 3, 2, generator=generator(2), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (embeddings,))


def test_a_saved_one_goes_on(student: Network) -> None:
    aligner = bottleneck(student.embedding_dim, 16, generator=generator(3))
    alignment = Snapshot(student, aligner)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.mul_(1.5)
    alignment.on_boundary(student)
    fresh = Snapshot(student, bottleneck(student.embedding_dim, 16, generator=generator(4)))
    fresh.load_state_dict(alignment.state_dict())
    encoded = encode(student, torch.randn(2, 6, 3, 16, 16, generator=generator(1)), [0, 1, 2, 3])
    loss = alignment(encoded, NO_OBJECTIVE)
    assert loss.item() != 0
    assert fresh(encoded, NO_OBJECTIVE).item() == loss.item()


def test_says_what_it_needs_and_is_not_evaluated_for_the_student(student: Network) -> None:
    alignment = Snapshot(student, nn.Identity())
    assert alignment.needs_boundaries
    assert alignment.needs_replay
    assert alignment.forwards(138, 128) == 256
    assert alignment.teacher is None
