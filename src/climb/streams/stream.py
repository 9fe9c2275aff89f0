"""The order in which training images arrive, and what belongs to which task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from climb.errors import InputError
from climb.seeds import frozen_generator
from climb.streams.batch import Batch
from climb.streams.blurring import blurring
from climb.streams.even_sizes import even_sizes
from climb.streams.held_out import held_out
from climb.streams.labels import checked_labels
from climb.streams.manifest import Manifest
from climb.streams.segment import Segment
from climb.streams.whole_number import whole_number

Indices = npt.NDArray[np.int64]


class Stream:
    """A manifest applied to the labels of a dataset.

    Labels serve to build the stream and to evaluate; a `Batch` carries none, and its ``ends_segment``
    is for the evaluator, not for a learner.

    >>> from climb.streams import regular
    >>> labels = torch.arange(4).repeat_interleave(10)
    >>> stream = Stream(regular(4, 2, seed=0), labels, labels)
    >>> len(stream), stream.number_of_batches(5)
    (36, 6)
    >>> [(batch.number, len(batch.indices), batch.ends_segment) for batch in stream.batches(5, start=4)]
    [(4, 5, None), (5, 5, 1)]
    """

    manifest: Manifest
    segments: tuple[Segment, ...]

    def __init__(self, manifest: Manifest, train_labels: torch.Tensor, test_labels: torch.Tensor) -> None:
        """``train_labels`` int64 (n,) and ``test_labels`` int64 (m,): every class of the manifest in both."""
        train = checked_labels(train_labels, manifest.classes, "training")
        test = checked_labels(test_labels, manifest.classes, "test")
        held = held_out(train, manifest.validation, frozen_generator(manifest.seed, "split"))
        build = _by_share if manifest.kind == "iid" else _by_class
        self.manifest = manifest
        self.segments, self._arrivals = build(manifest, train, held, test)

    def __len__(self) -> int:
        """Training images in the stream, before a mini-batch size leaves any over."""
        return sum(len(arrival) for arrival in self._arrivals)

    def number_of_batches(self, size: int) -> int:
        """How many mini-batches of ``size`` `batches` gives."""
        whole_number(size, "the mini-batch size", least=1)
        return sum(_batches_of(arrival, size) for arrival in self._arrivals)

    def batches(self, size: int, *, start: int = 0) -> Iterator[Batch]:
        """Mini-batches of ``size`` images, from mini-batch number ``start`` on.

        A segment gives full mini-batches only: the incomplete rest at its end is dropped, so that no
        mini-batch spans two segments. A segment smaller than one mini-batch gives one short mini-batch
        instead of none, so that every segment trains something and announces its end.
        """
        total = self.number_of_batches(size)
        if whole_number(start, "start", least=0) > total:
            raise InputError(f"start {start} is past the end for mini-batches of {size}; use 0 to {total}")
        return self._from(size, start)

    def shuffled(self, size: int, count: int, *, start: int = 0) -> Iterator[Batch]:
        """``count`` mini-batches of ``size`` images as if there were no tasks, from mini-batch ``start`` on.

        All training images arrive in random order, epoch after epoch, each epoch in an order of its own; what an
        epoch leaves over begins the next mini-batch. Held-out images never arrive. Segments end after the same shares
        of the mini-batches as they do of the images of the stream, so that both are evaluated at the same moments.

        >>> from climb.streams import regular
        >>> labels = torch.arange(4).repeat_interleave(10)
        >>> stream = Stream(regular(4, 2, seed=0), labels, labels)
        >>> [(len(batch.indices), batch.ends_segment) for batch in stream.shuffled(50, 4)]
        [(50, None), (50, 0), (50, None), (50, 1)]
        """
        whole_number(size, "the mini-batch size", least=1)
        if whole_number(count, "the number of mini-batches", least=1) < len(self.segments):
            raise InputError(
                f"{count} mini-batches cannot end {len(self.segments)} segments; use {len(self.segments)} or more"
            )
        if whole_number(start, "start", least=0) > count:
            raise InputError(f"start {start} is past the end of {count} mini-batches; use 0 to {count}")
        return self._shuffled(size, count, start)

    def _shuffled(self, size: int, count: int, start: int) -> Iterator[Batch]:
        shuffle = frozen_generator(self.manifest.seed, "iid")
        members = np.sort(torch.cat(self._arrivals).numpy())
        segment_of = {end - 1: segment for segment, end in enumerate(self._ends(count))}
        waiting = members[:0]
        for number in range(count):  # those before `start` are drawn too: the rest depends on them
            while len(waiting) < size:
                waiting = np.concatenate([waiting, shuffle.permutation(members)])
            indices, waiting = waiting[:size], waiting[size:]
            if number >= start:
                yield Batch(number=number, indices=_tensor(indices), ends_segment=segment_of.get(number))

    def _ends(self, count: int) -> list[int]:
        """After how many of ``count`` mini-batches each segment ends: every one later than the one before."""
        total, arrived, ends = len(self), 0, [0]
        for segment, arrival in enumerate(self._arrivals):
            arrived += len(arrival)
            nearest = (2 * count * arrived + total) // (2 * total)
            later_segments = len(self._arrivals) - 1 - segment
            ends.append(min(max(nearest, ends[-1] + 1), count - later_segments))
        return ends[1:]

    def _from(self, size: int, start: int) -> Iterator[Batch]:
        first = 0
        for segment, arrival in enumerate(self._arrivals):
            count = _batches_of(arrival, size)
            for position in range(max(start - first, 0), count):
                yield Batch(
                    number=first + position,
                    # A copy: what a caller does to its mini-batch must not reach the stream.
                    indices=arrival[position * size : (position + 1) * size].clone(),
                    ends_segment=segment if position == count - 1 else None,
                )
            first += count


def _batches_of(arrival: torch.Tensor, size: int) -> int:
    return max(len(arrival) // size, 1)


_Built = tuple[tuple[Segment, ...], tuple[torch.Tensor, ...]]
"""The segments, and what arrives in each: not the same images where boundaries are blurred."""


def _by_class(manifest: Manifest, train: Indices, held: npt.NDArray[np.bool_], test: Indices) -> _Built:
    """Segments of the images whose classes belong to one task."""
    task_of_class = np.empty(manifest.classes, dtype=np.int64)
    for task, classes in enumerate(manifest.tasks):
        task_of_class[list(classes)] = task
    train_tasks, test_tasks = task_of_class[train], task_of_class[test]
    tasks = range(len(manifest.tasks))
    shuffle = frozen_generator(manifest.seed, "stream order")
    arrivals = [shuffle.permutation(np.flatnonzero((train_tasks == task) & ~held)) for task in tasks]
    if manifest.blur:
        # A generator of its own: apart from the boundaries, images arrive as they do without blur.
        arrivals = blurring(arrivals, manifest.blur, frozen_generator(manifest.seed, "blur"))
    stream = np.concatenate(arrivals)
    segments = tuple(
        Segment(
            train=_tensor(stream[train_tasks[stream] == task]),
            validation=_tensor(np.flatnonzero((train_tasks == task) & held)),
            test=_tensor(np.flatnonzero(test_tasks == task)),
            classes=manifest.tasks[task],
        )
        for task in tasks
    )
    return segments, tuple(map(_tensor, arrivals))


def _by_share(manifest: Manifest, train: Indices, held: npt.NDArray[np.bool_], test: Indices) -> _Built:
    """Segments of equal random shares of all images, whatever their class."""

    def shares(members: Indices, name: str) -> list[Indices]:
        shuffled = frozen_generator(manifest.seed, name).permutation(members)
        return np.split(shuffled, np.cumsum(even_sizes(len(members), len(manifest.tasks)))[:-1])

    arrivals = shares(np.flatnonzero(~held), "stream order")
    validations = shares(np.flatnonzero(held), "validation shares")
    tests = shares(np.arange(len(test)), "test shares")
    segments = tuple(
        Segment(
            train=_tensor(arrival),
            validation=_tensor(np.sort(validation)),
            test=_tensor(np.sort(share)),
            classes=tuple(range(manifest.classes)),
        )
        for arrival, validation, share in zip(arrivals, validations, tests, strict=True)
    )
    return segments, tuple(map(_tensor, arrivals))


def _tensor(indices: Indices) -> torch.Tensor:
    return torch.from_numpy(indices.astype(np.int64))
