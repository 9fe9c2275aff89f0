"""The order of the i.i.d. bound: the same training images without tasks, evaluated at the same moments."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from climb.errors import InputError
from climb.streams import KINDS, Stream, make, regular


def labels_of(counts: list[int]) -> torch.Tensor:
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]


def stream_of(counts: list[int], tasks: int, *, kind: str = "regular", seed: int = 0) -> Stream:
    cap = len(counts) if kind == "irregular" else None
    return Stream(make(kind, len(counts), tasks, seed=seed, cap=cap), labels_of(counts), labels_of(counts))


def arrived(stream: Stream, size: int, count: int, start: int = 0) -> list[int]:
    return [index for batch in stream.shuffled(size, count, start=start) for index in batch.indices.tolist()]


@settings(max_examples=60)
@given(
    data=st.data(),
    kind=st.sampled_from(KINDS),
    counts=st.lists(st.integers(1, 25), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
    size=st.integers(1, 40),
)
def test_invariants_of_shuffled_streams(
    data: st.DataObject, kind: str, counts: list[int], seed: int, size: int
) -> None:
    tasks = data.draw(st.integers(1, len(counts)))
    count = data.draw(st.integers(tasks, 30))
    stream = stream_of(counts, tasks, kind=kind, seed=seed)
    batches = list(stream.shuffled(size, count))
    assert [batch.number for batch in batches] == list(range(count))
    assert {len(batch.indices) for batch in batches} == {size}
    assert {(batch.indices.dtype, batch.indices.device.type) for batch in batches} == {(torch.int64, "cpu")}
    # Whole epochs over the training images: no held-out image arrives, and counts differ by at most one.
    trained = {index for group in stream.groups for index in group.train.tolist()}
    indices = arrived(stream, size, count)
    assert set(indices) <= trained
    for first in range(0, len(indices), len(trained)):
        epoch = indices[first : first + len(trained)]
        assert len(set(epoch)) == len(epoch)
    # Every segment announces its end, in order, the last one at the last mini-batch.
    assert [batch.ends_segment for batch in batches if batch.ends_segment is not None] == list(range(tasks))
    assert batches[-1].ends_segment == tasks - 1


def test_epochs_are_reshuffled_and_span_tasks() -> None:
    stream = stream_of([20] * 4, 2)
    indices = arrived(stream, 36, 6)
    epochs = [indices[first : first + 72] for first in (0, 72, 144)]
    assert all(Counter(epoch) == Counter(epochs[0]) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    labels = labels_of([20] * 4)
    for batch in stream.shuffled(36, 6):
        assert set(labels[batch.indices].tolist()) == {0, 1, 2, 3}


def test_segments_end_after_the_same_shares_as_in_the_stream() -> None:
    stream = stream_of([20, 40, 60, 80], 4)  # 18, 36, 54 and 72 images train, in the order of the tasks
    size = 9
    count = stream.number_of_batches(size)
    expected = [(batch.number, batch.ends_segment) for batch in stream.batches(size)]
    assert [(batch.number, batch.ends_segment) for batch in stream.shuffled(50, count)] == expected
    # Half as many mini-batches halve the numbers.
    ends = [batch.number + 1 for batch in stream.batches(size) if batch.ends_segment is not None]
    halved = [batch.number + 1 for batch in stream.shuffled(50, count // 2) if batch.ends_segment is not None]
    assert halved == [end // 2 for end in ends]


def test_small_segments_still_end_one_after_another() -> None:
    counts = [1, 1, 1, 1000]
    for seed in range(8):  # the large class comes at different places
        stream = stream_of(counts, 4, seed=seed)
        for count in (4, 5, 50):
            ends = [batch.number for batch in stream.shuffled(3, count) if batch.ends_segment is not None]
            assert ends == sorted(set(ends))
            assert len(ends) == 4
            assert ends[-1] == count - 1


def test_batches_continue_from_any_start() -> None:
    stream = stream_of([20] * 4, 2)
    whole = list(stream.shuffled(7, 30))
    for start in (0, 1, 11, 29, 30):
        rest = list(stream.shuffled(7, 30, start=start))
        assert [batch.number for batch in rest] == list(range(start, 30))
        for one, other in zip(whole[start:], rest, strict=True):
            assert torch.equal(one.indices, other.indices)
            assert one.ends_segment == other.ends_segment


def test_depends_on_the_seed_and_not_on_what_a_caller_does() -> None:
    stream = stream_of([20] * 4, 2)
    before = arrived(stream, 10, 20)
    for batch in stream.shuffled(10, 20):
        batch.indices.zero_()
    assert arrived(stream, 10, 20) == before
    assert arrived(stream_of([20] * 4, 2, seed=1), 10, 20) != before
    # The tasks do not matter: another task count with the same seed holds out the same images.
    assert arrived(stream_of([20] * 4, 4), 10, 20) == before


def test_the_order_is_the_same_forever() -> None:
    labels = torch.arange(4).repeat_interleave(5)
    stream = Stream(regular(4, 2, seed=7), labels, labels)
    assert [batch.indices.tolist() for batch in stream.shuffled(12, 2)] == [
        [7, 9, 19, 6, 8, 3, 10, 17, 4, 0, 1, 5],
        [14, 15, 12, 11, 18, 2, 13, 16, 0, 4, 5, 10],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0, "count": 4}, "mini-batch size must be 1 or more"),
        ({"size": 5, "count": 1}, "1 mini-batches cannot end 2 segments; use 2 or more"),
        ({"size": 5, "count": 2.5}, "number of mini-batches must be a whole number"),
        ({"size": 5, "count": 4, "start": 5}, "start 5 is past the end of 4 mini-batches; use 0 to 4"),
        ({"size": 5, "count": 4, "start": -1}, "start must be 0 or more"),
    ],
)
def test_impossible_requests_are_refused_at_once(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        stream_of([20] * 4, 2).shuffled(**arguments)
