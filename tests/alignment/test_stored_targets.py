"""Stored targets: the loss by hand, its gradient, which target belongs to which row."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from climb.alignment.stored_targets import StoredTargets
from climb.errors import ClimbError
from climb.nets import Encoded, bottleneck

NO_OBJECTIVE = torch.tensor(0.0)  # the loss does not depend on it


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def encoded(embeddings: torch.Tensor, replay: list[int], targets: torch.Tensor | None) -> Encoded:
    n = embeddings.shape[1]
    return Encoded(
        views=torch.zeros(2, n, 3, 8, 8),
        features=embeddings,
        embeddings=embeddings,
        stream_rows=torch.tensor([row for row in range(n) if row not in replay]),
        replay_rows=torch.tensor(replay),
        targets=targets,
    )


EMBEDDINGS = torch.tensor([[[9.0, 9.0], [0.0, 1.0], [4.0, 3.0]], [[9.0, -9.0], [1.0, 1.0], [1.0, 0.0]]])


def test_the_loss_by_hand() -> None:
    targets = torch.tensor([[0.0, 2.0], [3.0, 4.0]])
    loss = StoredTargets(nn.Identity())(encoded(EMBEDDINGS, [1, 2], targets), NO_OBJECTIVE)
    # first views: (0,1).(0,2) = 1 and (4,3).(3,4) = 24/25; second: (1,1).(0,2) = 1/sqrt 2 and (1,0).(3,4) = 3/5
    assert loss.item() == pytest.approx(-(1 + 24 / 25 + 0.5**0.5 + 3 / 5) / 4, abs=1e-6)


def test_a_target_follows_its_row_and_stream_rows_have_none() -> None:
    alignment = StoredTargets(nn.Identity())
    targets = torch.tensor([[0.0, 2.0], [3.0, 4.0]])
    expected = alignment(encoded(EMBEDDINGS, [1, 2], targets), NO_OBJECTIVE)
    moved = alignment(encoded(EMBEDDINGS[:, [2, 0, 1]], [2, 0], targets), NO_OBJECTIVE)
    assert moved.item() == pytest.approx(expected.item(), abs=1e-6)
    swapped = alignment(encoded(EMBEDDINGS, [1, 2], targets.flip(0)), NO_OBJECTIVE)
    assert swapped.item() != pytest.approx(expected.item(), abs=1e-3)
    other_stream = EMBEDDINGS.clone()
    other_stream[:, 0] = -1.0
    assert alignment(encoded(other_stream, [1, 2], targets), NO_OBJECTIVE).item() == expected.item()


def test_the_gradient_by_finite_differences() -> None:
    alignment = StoredTargets(nn.Sequential(nn.Linear(4, 3, bias=False), nn.Tanh(), nn.Linear(3, 4))).double()
    targets = torch.randn(2, 4, generator=generator(1), dtype=torch.float64)

    def loss(embeddings: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = alignment(encoded(embeddings, [2, 0], targets), NO_OBJECTIVE)
        return value

    embeddings = torch.randn(2, 3, 4, generator=generator(2), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, (embeddings,))


def test_trains_the_aligner_and_not_what_is_stored() -> None:
    aligner = bottleneck(8, 4, generator=generator())
    alignment = StoredTargets(aligner)
    embeddings = torch.randn(2, 5, 8, generator=generator(1), requires_grad=True)
    targets = torch.randn(3, 8, generator=generator(2), requires_grad=True)
    alignment(encoded(embeddings, [1, 2, 4], targets), NO_OBJECTIVE).backward()
    assert targets.grad is None
    assert embeddings.grad is not None
    assert embeddings.grad[:, [0, 3]].abs().max() == 0
    assert (embeddings.grad[:, [1, 2, 4]].abs().amax(dim=2) > 0).all()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in aligner.parameters())
    assert {name for name, _ in alignment.named_parameters()} == {f"aligner.{n}" for n, _ in aligner.named_parameters()}


def test_needs_replay_costs_no_forward_and_has_no_teacher() -> None:
    alignment = StoredTargets(nn.Identity())
    assert alignment.needs_replay
    assert not alignment.needs_boundaries
    assert alignment.forwards(138, 128) == 0
    assert alignment.teacher is None


def test_a_memory_without_embeddings_is_named() -> None:
    with pytest.raises(ClimbError, match="embedding_rate"):
        StoredTargets(nn.Identity())(encoded(EMBEDDINGS, [1, 2], None), NO_OBJECTIVE)
