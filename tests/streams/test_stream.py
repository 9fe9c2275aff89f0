from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from climb.errors import InputError
from climb.streams import KINDS, Manifest, Stream, blurred, iid, irregular, make, regular
from climb.streams.stream import blur_boundaries


def labels_of(counts: list[int], seed: int = 0) -> torch.Tensor:
    """``counts[c]`` labels of each class c, in random order."""
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))]


def arrived(stream: Stream, size: int, start: int = 0) -> list[int]:
    return [index for batch in stream.batches(size, start=start) for index in batch.indices.tolist()]


def joined(parts: list[torch.Tensor]) -> list[int]:
    return sorted(torch.cat(parts).tolist())


@settings(max_examples=60)
@given(
    data=st.data(),
    kind=st.sampled_from(KINDS),
    counts=st.lists(st.integers(1, 25), min_size=1, max_size=8),
    seed=st.integers(0, 1000),
    validation=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    size=st.integers(1, 30),
)
def test_invariants_of_streams(
    data: st.DataObject, kind: str, counts: list[int], seed: int, validation: float, size: int
) -> None:
    tasks = data.draw(st.integers(1, len(counts)))
    blur = data.draw(st.integers(1, 40)) if kind == "blurred" else None
    cap = len(counts) if kind == "irregular" else None
    manifest = make(kind, len(counts), tasks, seed=seed, validation=validation, blur=blur, cap=cap)
    train, test = labels_of(counts, 1), labels_of([1 + n // 3 for n in counts], 2)
    stream = Stream(manifest, train, test)
    groups = stream.groups

    # Training and held-out images partition the training split; test images partition the test split.
    assert len(groups) == tasks
    trained = joined([group.train for group in groups])
    held = joined([group.validation for group in groups])
    assert sorted(trained + held) == list(range(len(train)))
    assert joined([group.test for group in groups]) == list(range(len(test)))
    assert len(stream) == len(trained)
    for group in groups:
        assert len(group.train) >= 1
        assert len(group.test) >= 1
        for indices in (group.train, group.validation, group.test):
            assert (indices.dtype, indices.device.type, indices.ndim) == (torch.int64, "cpu", 1)
        assert kind == "iid" or set(train[group.train].tolist()) <= set(test[group.test].tolist())
        for ascending in (group.validation.tolist(), group.test.tolist()):
            assert ascending == sorted(ascending)

    # The held-out share is stratified.
    of_class = torch.bincount(train[torch.tensor(held, dtype=torch.int64)], minlength=len(counts)).tolist()
    assert of_class == [int(validation * n) for n in counts]

    # Each image arrives at most once, held-out images never do, and segments end in order.
    batches = list(stream.batches(size))
    seen = arrived(stream, size)
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(trained)
    assert [batch.number for batch in batches] == list(range(stream.number_of_batches(size)))
    assert [batch.ends_segment for batch in batches if batch.ends_segment is not None] == list(range(tasks))
    assert batches[-1].ends_segment == tasks - 1

    # A segment yields full mini-batches only, or one short one.
    images, per_segment = 0, []
    for batch in batches:
        images += len(batch.indices)
        if batch.ends_segment is not None:
            per_segment.append(images)
            images = 0
    lengths = [len(group.train) for group in groups]
    assert per_segment == [n // size * size if n >= size else n for n in lengths]

    # A stream resumed at any mini-batch continues identically.
    start = data.draw(st.integers(0, len(batches)))
    resumed = list(stream.batches(size, start=start))
    assert [b.number for b in resumed] == [b.number for b in batches[start:]]
    assert [b.ends_segment for b in resumed] == [b.ends_segment for b in batches[start:]]
    assert [b.indices.tolist() for b in resumed] == [b.indices.tolist() for b in batches[start:]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_manifest_replays_the_same_stream(kind: str, tmp_path: Path) -> None:
    train, test = labels_of([30] * 10), labels_of([6] * 10)
    manifest = make(kind, 10, 5, seed=3)
    manifest.save(tmp_path / "stream.json")
    first = Stream(manifest, train, test)
    again = Stream(Manifest.load(tmp_path / "stream.json"), train.clone(), test.clone())
    assert arrived(first, 10) == arrived(again, 10)
    for one, other in zip(first.groups, again.groups, strict=True):
        assert torch.equal(one.train, other.train)
        assert torch.equal(one.validation, other.validation)
        assert torch.equal(one.test, other.test)
        assert one.name == other.name
    other_seed = Stream(make(kind, 10, 5, seed=4), train, test)
    assert arrived(first, 10) != arrived(other_seed, 10)


@pytest.mark.parametrize("make_manifest", [regular, irregular])
def test_tasks_arrive_in_order_and_shuffled_within(make_manifest: object) -> None:
    train, test = labels_of([40] * 6), labels_of([5] * 6)
    manifest: Manifest = make_manifest(6, 3, seed=0)  # type: ignore[operator]
    stream = Stream(manifest, train, test)
    # Every segment is a multiple of 36, so that size 4 drops nothing.
    assert arrived(stream, 4) == torch.cat([group.train for group in stream.groups]).tolist()
    for group, classes in zip(stream.groups, manifest.tasks, strict=True):
        assert set(train[group.train].tolist()) == set(classes)
        assert set(test[group.test].tolist()) == set(classes)
        assert set(train[group.validation].tolist()) == set(classes)
        assert group.train.tolist() != sorted(group.train.tolist())


def test_cifar_sized_stream_has_the_known_counts() -> None:
    stream = Stream(irregular(100, 20, seed=0), labels_of([500] * 100), labels_of([100] * 100))
    assert len(stream) == 45_000
    assert stream.number_of_batches(10) == 4_500
    assert sum(len(group.validation) for group in stream.groups) == 5_000


def test_blur_mixes_both_sides_of_a_boundary_and_nothing_else() -> None:
    train, test = labels_of([100] * 3), labels_of([5] * 3)
    sharp = Stream(regular(3, 3, seed=0), train, test)
    stream = Stream(blurred(3, 3, seed=0, blur=20), train, test)
    before, after = arrived(sharp, 10), arrived(stream, 10)
    mixed = [*range(70, 110), *range(160, 200)]
    kept = [position for position in range(270) if position not in mixed]
    assert [before[p] for p in kept] == [after[p] for p in kept]
    for boundary in (90, 180):
        around = slice(boundary - 20, boundary + 20)
        assert sorted(before[around]) == sorted(after[around])
        left = train[after[boundary - 20 : boundary]].tolist()
        right = train[after[boundary : boundary + 20]].tolist()
        # Of 20 images, about 10 belong to the other side.
        assert 4 <= len([c for c in left if c != left[0]]) <= 16
        assert set(left) == set(right)
    ends = [batch.number for batch in stream.batches(10) if batch.ends_segment is not None]
    assert ends == [8, 17, 26]


def test_blur_leaves_every_image_with_the_task_of_its_class() -> None:
    train, test = labels_of([60] * 4), labels_of([5] * 4)
    sharp = Stream(regular(4, 2, seed=1), train, test)
    stream = Stream(blurred(4, 2, seed=1, blur=30), train, test)
    order = arrived(stream, 1)
    for one, other in zip(sharp.groups, stream.groups, strict=True):
        assert sorted(one.train.tolist()) == sorted(other.train.tolist())
        assert torch.equal(one.validation, other.validation)
        assert torch.equal(one.test, other.test)
        positions = [order.index(index) for index in other.train.tolist()]
        assert positions == sorted(positions)


def test_blur_takes_at_most_half_a_task() -> None:
    train = labels_of([40] * 3)
    stream = Stream(blurred(3, 3, seed=0, blur=1000, validation=0), train, train)
    first, middle = stream.manifest.tasks[0][0], stream.manifest.tasks[1][0]
    order = train[arrived(stream, 1)].tolist()
    # The first half of the first task and the second half of the last one stay as they are.
    assert set(order[:20]) == set(stream.manifest.tasks[0])
    assert set(order[100:]) == set(stream.manifest.tasks[2])
    # No image crosses two boundaries.
    assert stream.manifest.tasks[2][0] not in order[:60]
    assert stream.manifest.tasks[0][0] not in order[60:]
    assert order[20:100].count(middle) == 40
    # The two halves around a boundary are mixed completely.
    assert middle in order[20:27]
    assert first in order[53:60]


def test_blur_takes_at_most_half_of_each_task_where_their_sizes_differ() -> None:
    long, short, longer = np.arange(40), np.arange(40, 44), np.arange(44, 104)
    first, middle, last = blur_boundaries([long, short, longer], 1000, np.random.RandomState(0))
    assert first[:20].tolist() == long[:20].tolist()
    assert last[30:].tolist() == longer[30:].tolist()
    # Each half of the short task stays within reach of its own boundary.
    assert set(first) <= {*long, 40, 41}
    assert set(last) <= {*longer, 42, 43}
    assert (len(first), len(middle), len(last)) == (40, 4, 60)


@pytest.mark.parametrize("kind", ["regular", "iid"])
def test_the_seed_determines_all_draws(kind: str) -> None:
    labels = labels_of([20] * 4)

    def stream(seed: int, validation: float) -> Stream:
        tasks = ((0, 1), (2, 3))
        return Stream(Manifest(kind=kind, tasks=tasks, seed=seed, validation=validation), labels, labels)

    assert arrived(stream(1, 0.0), 1) != arrived(stream(2, 0.0), 1)
    one, other = (joined([group.validation for group in stream(seed, 0.2).groups]) for seed in (1, 2))
    assert one != other


def test_how_a_boundary_is_blurred_follows_the_seed() -> None:
    labels = labels_of([20] * 4)

    def places(seed: int) -> list[int]:
        """Position of each image without blur."""
        sharp, mixed = Manifest(kind="regular", tasks=((0, 1), (2, 3)), seed=seed), blurred(4, 2, seed=seed, blur=10)
        order = arrived(Stream(sharp, labels, labels), 1)
        return [order.index(image) for image in arrived(Stream(replace(mixed, tasks=sharp.tasks), labels, labels), 1)]

    assert places(1) != places(2)


def test_iid_segments_are_equal_random_shares() -> None:
    train, test = labels_of([103] * 7), labels_of([20] * 7)
    stream = Stream(iid(7, 3, seed=0), train, test)
    for part in ("train", "validation", "test"):
        sizes = [len(getattr(group, part)) for group in stream.groups]
        assert max(sizes) - min(sizes) <= 1
    for group in stream.groups:
        assert set(train[group.train].tolist()) == set(range(7))
        assert set(test[group.test].tolist()) == set(range(7))
    assert arrived(stream, 1) == torch.cat([group.train for group in stream.groups]).tolist()


def test_all_kinds_hold_out_the_same_images() -> None:
    train = labels_of([30] * 6)
    held = [
        joined([group.validation for group in Stream(make(kind, 6, 3, seed=5), train, train).groups]) for kind in KINDS
    ]
    assert held[0] == held[1] == held[2] == held[3]


def test_a_segment_smaller_than_a_mini_batch_gives_one_short_one() -> None:
    train = torch.tensor([0] * 3 + [1] * 25)
    manifest = Manifest(kind="regular", tasks=((0,), (1,)), seed=0, validation=0)
    batches = list(Stream(manifest, train, train).batches(10))
    assert [(len(b.indices), b.ends_segment) for b in batches] == [(3, 0), (10, None), (10, 1)]


def test_changing_a_mini_batch_or_a_segment_does_not_change_the_stream() -> None:
    train = labels_of([10] * 4)
    stream = Stream(iid(4, 2, seed=0), train, train)
    before = arrived(stream, 5)
    for batch in stream.batches(5):
        batch.indices.zero_()
    for group in stream.groups:
        group.train.zero_()
    assert arrived(stream, 5) == before


FROZEN = {
    "regular": [12, 13, 16, 19, 17, 14, 11, 15, 3, 8, 4, 6, 5, 2, 0, 9],
    "blurred": [12, 13, 16, 19, 17, 14, 11, 3, 8, 15, 4, 6, 5, 2, 0, 9],
    "iid": [4, 3, 8, 13, 12, 6, 19, 2, 15, 9, 0, 16, 17, 14, 11, 5],
}


def test_the_frozen_order_of_arrival() -> None:
    # These numbers must never change: a shared manifest gives the same order everywhere.
    train = torch.arange(4).repeat_interleave(5)
    for kind, order in FROZEN.items():
        manifest = make(kind, 4, 2, seed=0, validation=0.2, blur=2 if kind == "blurred" else None)
        assert arrived(Stream(manifest, train, train), 1) == order


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ([0, 1, 2, 3, 9, 7], [0, 1, 2, 3], "training split has the labels 7, 9"),
        ([0, 1, 2, -1], [0, 1, 2, 3], "training split has the labels -1"),
        ([0, 1, 2, 3], [0, 1, 2, 3, 4], "test split has the labels 4"),
        ([0, 3], [0, 1, 2, 3], "training split has no image of class 1, 2"),
        ([0, 1, 2, 3], [0, 1, 2], "test split has no image of class 3"),
        ([], [0, 1, 2, 3], "training split has no image of class 0, 1, 2, 3"),
    ],
)
def test_labels_that_do_not_fit_are_named(train: list[int], test: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Stream(regular(4, 2, seed=0), torch.tensor(train).long(), torch.tensor(test).long())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.arange(4, dtype=torch.int32), r"not torch.int32 of shape \(4,\)"),
        (torch.arange(4).reshape(2, 2), r"not torch.int64 of shape \(2, 2\)"),
        ([0, 1, 2, 3], "not list"),
    ],
)
def test_labels_of_another_type_are_refused(labels: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Stream(regular(4, 2, seed=0), torch.arange(4), labels)


def test_bad_sizes_and_starts_are_refused_at_the_call() -> None:
    stream = Stream(regular(4, 2, seed=0), labels_of([10] * 4), labels_of([2] * 4))
    assert stream.number_of_batches(6) == 6
    assert list(stream.batches(6, start=6)) == []
    with pytest.raises(InputError, match="use 0 to 6"):
        stream.batches(6, start=7)
    with pytest.raises(InputError, match="start must be 0 or more"):
        stream.batches(6, start=-1)
    with pytest.raises(InputError, match="mini-batch size must be 1 or more, not 0"):
        stream.batches(0)
