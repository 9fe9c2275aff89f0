"""The EMA teacher: its closed form, its loss by hand, and what it must not change."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import nn

from climb.alignment import Alignment, EmaTeacher
from climb.nets import Encoded, Network, bottleneck, build_network

NO_OBJECTIVE = torch.tensor(0.0)  # the teacher's loss does not depend on it


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def student() -> Network:
    return build_network("micro", 16, generator=generator())


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


def disturb(network: nn.Module, seed: int) -> None:
    """Stands for a gradient step: every parameter changes."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator(seed)))


@pytest.mark.parametrize(("period", "steps_per_average"), [("step", 1), ("batch", 3)])
def test_follows_the_closed_form(student: Network, period: Literal["step", "batch"], steps_per_average: int) -> None:
    decay, passes, batches = 0.9, 3, 4
    alignment = EmaTeacher(student, nn.Identity(), decay=decay, period=period)
    history = [[p.detach().clone() for p in student.parameters()]]  # the start, then what each average saw
    for step in range(1, passes * batches + 1):
        disturb(student, step)
        alignment.after_step(student)
        if step % steps_per_average == 0:
            history.append([p.detach().clone() for p in student.parameters()])
        if step % passes == 0:
            alignment.after_batch(student)
    k = len(history) - 1
    assert k == (12 if period == "step" else 4)
    for position, teacher in enumerate(alignment.teacher.parameters()):
        expected = decay**k * history[0][position]
        for i in range(1, k + 1):
            expected = expected + (1 - decay) * decay ** (k - i) * history[i][position]
        torch.testing.assert_close(teacher, expected, rtol=1e-4, atol=1e-5)


def test_decay_zero_is_the_previous_step_and_one_the_start(student: Network) -> None:
    start = [p.detach().clone() for p in student.parameters()]
    latest = EmaTeacher(student, nn.Identity(), decay=0.0)
    first = EmaTeacher(student, nn.Identity(), decay=1.0)
    disturb(student, 1)
    for alignment in (latest, first):
        alignment.after_step(student)
    assert all(map(torch.equal, latest.teacher.parameters(), student.parameters()))
    assert all(map(torch.equal, first.teacher.parameters(), start))


def test_the_default_decay(student: Network) -> None:
    alignment = EmaTeacher(student, nn.Identity())
    start = [p.detach().clone() for p in student.parameters()]
    disturb(student, 1)
    alignment.after_step(student)
    for old, new, parameter in zip(start, student.parameters(), alignment.teacher.parameters(), strict=True):
        torch.testing.assert_close(parameter, 0.999 * old + 0.001 * new)


@pytest.mark.parametrize("period", ["step", "batch"])
def test_an_average_remembers_no_history(student: Network, period: Literal["step", "batch"]) -> None:
    """Were it recorded, every step of the stream would be kept for a gradient that no one asks for."""
    alignment = EmaTeacher(student, nn.Identity(), period=period)
    alignment.after_step(student)
    alignment.after_batch(student)
    assert not any(p.requires_grad for p in alignment.teacher.parameters())


def test_an_identity_aligner_and_an_equal_teacher_give_minus_one(student: Network) -> None:
    views = torch.randn(2, 6, 3, 16, 16, generator=generator(1))
    # Every row replayed: student and teacher normalise by the same batch.
    loss = EmaTeacher(student, nn.Identity())(encode(student, views, [0, 1, 2, 3, 4, 5]), NO_OBJECTIVE)
    assert loss.item() == pytest.approx(-1.0, abs=1e-5)


class Picked(nn.Module):
    """A network that embeds an image as its first two pixels, for losses that can be worked out by hand."""

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        flat = images.flatten(1)[:, :2]
        return flat, flat


def test_the_loss_by_hand() -> None:
    views = torch.zeros(2, 3, 3, 8, 8)
    views[:, :, 0, 0, :2] = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [3.0, 4.0]], [[1.0, 1.0], [5.0, 0.0], [0.0, 1.0]]])
    encoded = Encoded(
        views=views,
        features=torch.zeros(2, 3, 1),
        # Row 0 is of the stream: were it counted, the mean would be another.
        embeddings=torch.tensor([[[-1.0, 0.0], [0.0, 1.0], [4.0, 3.0]], [[-1.0, -1.0], [1.0, 1.0], [1.0, 0.0]]]),
        stream_rows=torch.tensor([0]),
        replay_rows=torch.tensor([1, 2]),
    )
    # cosines: (0,1).(0,2) = 1; (4,3).(3,4) = 24/25; (1,1).(5,0) = 1/sqrt 2; (1,0).(0,1) = 0
    expected = -(1 + 24 / 25 + 0.5**0.5 + 0) / 4
    assert EmaTeacher(Picked(), nn.Identity())(encoded, NO_OBJECTIVE).item() == pytest.approx(expected, abs=1e-6)


def test_all_rows_by_hand_with_or_without_replay() -> None:
    views = torch.zeros(2, 2, 3, 8, 8)
    views[:, :, 0, 0, :2] = torch.tensor([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [5.0, 0.0]]])
    embeddings = torch.tensor([[[-1.0, 0.0], [0.0, 1.0]], [[-1.0, -1.0], [1.0, 1.0]]])
    alignment = EmaTeacher(Picked(), nn.Identity(), rows="all")
    for replay in ([], [1]):
        encoded = Encoded(
            views=views,
            features=embeddings,
            embeddings=embeddings,
            stream_rows=torch.tensor([row for row in range(2) if row not in replay]),
            replay_rows=torch.tensor(replay, dtype=torch.int64),
        )
        # cosines: -1, 1, -1, 1/sqrt 2
        assert alignment(encoded, NO_OBJECTIVE).item() == pytest.approx((1 - 0.5**0.5) / 4, abs=1e-6)


def test_which_rows_decides_when_it_speaks_and_what_it_costs() -> None:
    replayed, every = EmaTeacher(Picked(), nn.Identity()), EmaTeacher(Picked(), nn.Identity(), rows="all")
    assert (replayed.needs_replay, every.needs_replay) == (True, False)
    assert EmaTeacher.needs_replay is True  # one that says otherwise says so for itself alone
    assert (replayed.forwards(138, 128), every.forwards(138, 128), every.forwards(10, 0)) == (256, 276, 20)


@pytest.mark.parametrize("rows", ["replay", "all"])
def test_the_gradient_by_finite_differences(rows: Literal["replay", "all"]) -> None:
    alignment = EmaTeacher(Picked(), nn.Linear(2, 2, bias=False), rows=rows).double()
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


def test_only_replay_rows_count_wherever_they_lie(student: Network) -> None:
    views = torch.randn(2, 6, 3, 16, 16, generator=generator(1))
    embeddings = torch.randn(2, 6, student.embedding_dim, generator=generator(2))
    aligner = bottleneck(student.embedding_dim, 16, generator=generator(3))
    alignment = EmaTeacher(student, aligner)

    def loss(order: list[int], replay: list[int], changed: torch.Tensor) -> float:
        encoded = Encoded(
            views=views[:, order],
            features=torch.zeros(2, 6, 1),
            embeddings=changed[:, order],
            stream_rows=torch.tensor([row for row in range(6) if row not in replay]),
            replay_rows=torch.tensor(replay),
        )
        return float(alignment(encoded, NO_OBJECTIVE).item())

    last_three = loss([0, 1, 2, 3, 4, 5], [3, 4, 5], embeddings)
    assert loss([5, 0, 3, 1, 4, 2], [0, 2, 4], embeddings) == pytest.approx(last_three, abs=1e-6)
    other_stream = embeddings.clone()
    other_stream[:, :3] = 9.0
    assert loss([0, 1, 2, 3, 4, 5], [3, 4, 5], other_stream) == last_three
    assert loss([0, 1, 2, 3, 4, 5], [0, 1, 2], embeddings) != pytest.approx(last_three, abs=1e-4)


def test_gradients_reach_student_and_aligner_but_not_the_teacher(student: Network) -> None:
    aligner = bottleneck(student.embedding_dim, 16, generator=generator(3))
    alignment = EmaTeacher(student, aligner)
    disturb(student, 1)
    views = torch.randn(2, 6, 3, 16, 16, generator=generator(1))
    alignment(encode(student, views, [2, 3, 4, 5]), NO_OBJECTIVE).backward()
    assert all(p.grad is not None for p in aligner.parameters())
    assert all(p.grad is not None for p in student.parameters())
    assert all(p.grad is None and not p.requires_grad for p in alignment.teacher.parameters())
    trained = {name for name, p in alignment.named_parameters() if p.requires_grad}
    assert trained == {f"aligner.{name}" for name, _ in aligner.named_parameters()}


def test_a_frozen_aligner_has_nothing_to_train(student: Network) -> None:
    aligner = bottleneck(student.embedding_dim, 16, generator=generator(3))
    alignment = EmaTeacher(student, aligner, train_aligner=False)
    assert not any(p.requires_grad for p in alignment.parameters())


def test_averages_parameters_only_and_keeps_statistics_of_its_own(student: Network) -> None:
    alignment = EmaTeacher(student, nn.Identity(), decay=0.0)
    views = 3.0 + torch.randn(2, 6, 3, 16, 16, generator=generator(1))
    encoded = encode(student, views, [4, 5])  # moves the student's running statistics
    before = {name: buffer.clone() for name, buffer in alignment.teacher.named_buffers()}
    assert any(not torch.equal(before[name], buffer) for name, buffer in student.named_buffers())
    alignment.after_step(student)
    assert all(torch.equal(before[name], buffer) for name, buffer in alignment.teacher.named_buffers())
    alignment(encoded, NO_OBJECTIVE)  # the teacher sees replayed views: its own statistics move
    assert any(not torch.equal(before[name], buffer) for name, buffer in alignment.teacher.named_buffers())


def test_until_it_has_run_once_it_takes_the_students_statistics(student: Network) -> None:
    alignment = EmaTeacher(student, nn.Identity())
    encoded = encode(student, 3.0 + torch.randn(2, 6, 3, 16, 16, generator=generator(1)), [4, 5])
    now = [buffer.clone() for buffer in student.buffers()]
    assert not all(map(torch.equal, alignment.teacher.buffers(), now))
    alignment.after_batch(student)
    assert all(map(torch.equal, alignment.teacher.buffers(), now))
    assert all(map(torch.equal, student.buffers(), now))
    alignment(encoded, NO_OBJECTIVE)
    alignment.after_batch(student)
    assert not all(map(torch.equal, alignment.teacher.buffers(), now))


def test_statistics_of_its_own_outlast_a_pause_of_replay_and_a_resume(student: Network) -> None:
    views = torch.randn(2, 6, 3, 16, 16, generator=generator(1))
    alignment = EmaTeacher(student, nn.Identity())
    alignment(encode(student, views, [4, 5]), NO_OBJECTIVE)
    state = alignment.state_dict()
    continued = EmaTeacher(build_network("micro", 16, generator=generator(9)), nn.Identity())
    continued.load_state_dict(state)
    for each in (alignment, continued):
        each.after_batch(student)  # of a mini-batch without replay: the memory holds too little just now
    assert all(map(torch.equal, continued.teacher.buffers(), alignment.teacher.buffers()))
    assert not all(map(torch.equal, continued.teacher.buffers(), student.buffers()))


def test_a_state_from_before_that_was_noted_is_loaded(student: Network) -> None:
    alignment = EmaTeacher(student, nn.Identity())
    state = {name: value for name, value in alignment.state_dict().items() if name != "_extra_state"}
    assert len(state) < len(alignment.state_dict())
    alignment.load_state_dict(state)
    assert len(state) < len(alignment.state_dict())  # what was given is left as it was
    student(3.0 + torch.randn(6, 3, 16, 16, generator=generator(1)))  # moves the student's running statistics
    alignment.after_batch(student)
    assert all(map(torch.equal, alignment.teacher.buffers(), student.buffers()))  # taken not to have run


def test_an_alignment_has_no_teacher_unless_it_says_so() -> None:
    class Nothing(Alignment):
        pass

    assert Nothing().teacher is None
    with pytest.raises(TypeError, match=r"Nothing must define forward\(encoded, objective\)"):
        Nothing()(None, None)
