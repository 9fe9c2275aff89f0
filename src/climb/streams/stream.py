"""The order in which training images arrive, and the groups of images on which features are evaluated."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import numpy.typing as npt
import torch

from climb.errors import InputError
from climb.seeds import frozen_generator
from climb.streams.manifest import Manifest, check_int, join_numbers
from climb.streams.sizes import even_sizes

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """A mini-batch of training images, by index."""

    number: int
    """Position in the stream, from 0."""
    indices: torch.Tensor
    """int64 (size,), on the CPU, into the training split."""
    ends_segment: int | None
    """The segment that this mini-batch completes, if any: the moment to evaluate."""


class Stream:
    """A manifest applied to the labels of a dataset: `groups` to evaluate, and `shown`, the groups of each segment.

    Labels serve to build the stream and to evaluate. A `Batch` has none, and its ``ends_segment`` is for the
    evaluator, not for a learner.

    Args:
        manifest: classes and order of the tasks.
        train_labels: int64 (n,), with every class of the manifest.
        test_labels: int64 (m,), with every class of the manifest.

    >>> from climb.streams import regular
    >>> labels = torch.arange(4).repeat_interleave(10)
    >>> stream = Stream(regular(4, 2, seed=0), labels, labels)
    >>> len(stream), stream.number_of_batches(5)
    (36, 6)
    >>> [(batch.number, len(batch.indices), batch.ends_segment) for batch in stream.batches(5, start=4)]
    [(4, 5, None), (5, 5, 1)]
    """

    def __init__(self, manifest: Manifest, train_labels: torch.Tensor, test_labels: torch.Tensor) -> None:
        self.manifest = manifest
        self.groups, self._arrivals, self.shown = assign(manifest, train_labels, test_labels)

    @property
    def segments(self) -> tuple[Group, ...]:
        """The old name of ``groups``, for one more release."""
        warnings.warn("Stream.segments is now Stream.groups", DeprecationWarning, stacklevel=2)
        return self.groups

    def __len__(self) -> int:
        """Training images in the stream, including those left over when it is cut into mini-batches."""
        return sum(len(arrival) for arrival in self._arrivals)

    def number_of_batches(self, size: int) -> int:
        """How many mini-batches of ``size`` `batches` yields."""
        check_int(size, "the mini-batch size", least=1)
        return sum(_batches_of(arrival, size) for arrival in self._arrivals)

    def batches(self, size: int, *, start: int = 0) -> Iterator[Batch]:
        """Mini-batches of ``size`` images, from mini-batch number ``start`` on.

        The incomplete rest at the end of a segment is dropped, so that no mini-batch spans two segments. A segment
        smaller than one mini-batch yields one short mini-batch, so that every segment is trained on and evaluated.
        """
        total = self.number_of_batches(size)
        if check_int(start, "start", least=0) > total:
            raise InputError(f"start {start} is past the end for mini-batches of {size}; use 0 to {total}")
        return _numbered(self._cut(size), start)

    def _cut(self, size: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        for segment, arrival in enumerate(self._arrivals):
            *others, last = torch.split(arrival, size)[: _batches_of(arrival, size)]
            yield from ((indices, None) for indices in others)
            yield last, segment

    def shuffled(self, size: int, count: int, *, start: int = 0) -> Iterator[Batch]:
        """``count`` mini-batches of ``size`` images as if there were no tasks, from mini-batch ``start`` on.

        All training images arrive in random order, epoch after epoch, each epoch in its own order. The rest of an
        epoch begins the next mini-batch. Held-out images never arrive. Segments end after the same shares of the
        mini-batches as of the images of the stream, so both are evaluated at the same moments.

        >>> from climb.streams import regular
        >>> labels = torch.arange(4).repeat_interleave(10)
        >>> stream = Stream(regular(4, 2, seed=0), labels, labels)
        >>> [(len(batch.indices), batch.ends_segment) for batch in stream.shuffled(50, 4)]
        [(50, None), (50, 0), (50, None), (50, 1)]
        """
        check_int(size, "the mini-batch size", least=1)
        if check_int(count, "the number of mini-batches", least=1) < len(self._arrivals):
            needed = len(self._arrivals)
            raise InputError(f"{count} mini-batches cannot end {needed} segments; use {needed} or more")
        if check_int(start, "start", least=0) > count:
            raise InputError(f"start {start} is past the end of {count} mini-batches; use 0 to {count}")
        return _numbered(self._shuffled(size, count), start)

    def _shuffled(self, size: int, count: int) -> Iterator[tuple[torch.Tensor, int | None]]:
        shuffle = frozen_generator(self.manifest.seed, "iid")
        members = np.sort(torch.cat(self._arrivals).numpy())
        segment_of = {end - 1: segment for segment, end in enumerate(self._ends(count))}
        waiting = members[:0]
        for number in range(count):
            while len(waiting) < size:
                waiting = np.concatenate([waiting, shuffle.permutation(members)])
            indices, waiting = waiting[:size], waiting[size:]
            yield to_tensor(indices), segment_of.get(number)

    def _ends(self, count: int) -> list[int]:
        """Number of mini-batches after which each segment ends, of ``count`` in all; strictly increasing."""
        arrived, order = np.cumsum([len(arrival) for arrival in self._arrivals]), np.arange(len(self._arrivals))
        nearest = (2 * count * arrived + arrived[-1]) // (2 * arrived[-1])
        # Increasing by at least one: what is above the segment's number must not decrease.
        above = np.maximum.accumulate(nearest - order).clip(1, count - order[-1])
        return list[int]((order + above).tolist())


def _numbered(batches: Iterator[tuple[torch.Tensor, int | None]], start: int) -> Iterator[Batch]:
    """The mini-batches from number ``start`` on. Indices are copied: the caller may change its mini-batch."""
    for number, (indices, ends_segment) in islice(enumerate(batches), start, None):
        yield Batch(number=number, indices=indices.clone(), ends_segment=ends_segment)


def _batches_of(arrival: torch.Tensor, size: int) -> int:
    return max(len(arrival) // size, 1)


# -- groups and segments -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Group:
    """Images on which features are evaluated, as int64 CPU tensors of indices: those of a task, a domain, a time."""

    name: str
    """"1", "2", ... for tasks."""
    train: torch.Tensor
    """(n,) into the training split, in order of arrival. Never empty.

    Includes the images that are left over when a segment is cut into mini-batches: probes train on them.
    """
    validation: torch.Tensor
    """(m,) into the training split, ascending. Held out, never trained on."""
    test: torch.Tensor
    """(k,) into the test split, ascending."""


Shown = tuple[tuple[int, ...], ...]
"""The groups that each segment shows. Groups are numbered in the order in which they are shown first."""


def assign(
    manifest: Manifest, train_labels: torch.Tensor, test_labels: torch.Tensor
) -> tuple[tuple[Group, ...], tuple[torch.Tensor, ...], Shown]:
    """The groups of a manifest for images with these labels, int64 (n,) and (m,).

    Returns the groups, the images that arrive in each segment, and the groups that each segment shows.
    """
    if manifest.is_listed:
        return _listed(manifest, len(train_labels), len(test_labels))
    labels = check_labels(train_labels, manifest.classes, "training")
    test = check_labels(test_labels, manifest.classes, "test")
    held_out = draw_validation(labels, manifest.validation, frozen_generator(manifest.seed, "split"))
    if manifest.kind == "iid":
        trains = arrivals = _shares(manifest, np.flatnonzero(~held_out), "stream order")
        validations = [np.sort(share) for share in _shares(manifest, np.flatnonzero(held_out), "validation shares")]
        tests = [np.sort(share) for share in _shares(manifest, np.arange(len(test)), "test shares")]
    else:
        shuffle = frozen_generator(manifest.seed, "stream order")
        members = [np.isin(labels, task) for task in manifest.tasks]
        arrivals = [shuffle.permutation(np.flatnonzero(own & ~held_out)) for own in members]
        if manifest.blur:
            # A separate generator: away from the boundaries, images arrive as without blur.
            arrivals = blur_boundaries(arrivals, manifest.blur, frozen_generator(manifest.seed, "blur"))
        stream = np.concatenate(arrivals)
        trains = [stream[own[stream]] for own in members]
        validations = [np.flatnonzero(own & held_out) for own in members]
        tests = [np.flatnonzero(np.isin(test, task)) for task in manifest.tasks]
    groups = tuple(
        Group(name=str(number), train=to_tensor(train), validation=to_tensor(validation), test=to_tensor(own_test))
        for number, (train, validation, own_test) in enumerate(zip(trains, validations, tests, strict=True), 1)
    )
    return groups, tuple(map(to_tensor, arrivals)), tuple((number,) for number in range(len(groups)))


def _listed(
    manifest: Manifest, train_images: int, test_images: int
) -> tuple[tuple[Group, ...], tuple[torch.Tensor, ...], Shown]:
    """The groups and segments of a manifest that lists its images."""
    for part, count, lists in (
        ("training", train_images, [*(g.train for g in manifest.groups), *(g.validation for g in manifest.groups),
                                    *(s.images for s in manifest.segments)]),
        ("test", test_images, [g.test for g in manifest.groups]),
    ):  # fmt: skip
        if (highest := max(map(max, filter(None, lists)), default=0)) >= count:
            raise InputError(
                f"the manifest lists {part} image {highest}, and the dataset has images 0 to {count - 1}; use a "
                "manifest made for this dataset"
            )
    groups = tuple(
        Group(
            name=group.name,
            **{part: torch.tensor(getattr(group, part), dtype=torch.int64) for part in ("train", "validation", "test")},
        )
        for group in manifest.groups
    )
    arrivals = tuple(torch.tensor(segment.images, dtype=torch.int64) for segment in manifest.segments)
    return groups, arrivals, tuple(segment.groups for segment in manifest.segments)


def _shares(manifest: Manifest, images: Indices, name: str) -> list[Indices]:
    """Equal random shares of some images, one for each task. ``name`` is that of the generator."""
    shuffled = frozen_generator(manifest.seed, name).permutation(images)
    return np.split(shuffled, np.cumsum(even_sizes(len(images), len(manifest.tasks)))[:-1])


def check_labels(labels: torch.Tensor, classes: int, split: str) -> Indices:
    """``labels``, int64 (n,), as an array. All must lie in 0 .. classes - 1, and every class needs an image.

    >>> check_labels(torch.tensor([0, 1, 1]), 2, "training")
    array([0, 1, 1])
    """
    is_tensor = isinstance(labels, torch.Tensor)
    if not is_tensor or labels.dtype != torch.int64 or labels.ndim != 1:
        kind = f"{labels.dtype} of shape {tuple(labels.shape)}" if is_tensor else type(labels).__name__
        raise InputError(f"the {split} labels must be a torch.int64 tensor of shape (n,), not {kind}")
    array: Indices = labels.detach().cpu().numpy()
    present, expected = set(np.unique(array).tolist()), set(range(classes))
    if outside := present - expected:
        differ = f"the manifest has classes 0 to {classes - 1}, and the {split} split has the labels"
        raise InputError(f"{differ} {join_numbers(outside)}; use a manifest made for this dataset")
    if absent := expected - present:
        missing = f"no image of class {join_numbers(absent)}; every class (0 to {classes - 1}) needs one"
        advice = "A folder without classes or without test images can be learned from, but not evaluated"
        raise InputError(f"the {split} split has {missing}. {advice}")
    return array


def draw_validation(labels: Indices, share: float, generator: np.random.RandomState) -> npt.NDArray[np.bool_]:
    """A mask (n,) of held-out images: a random ``share`` of each class, rounded down.

    >>> labels = np.repeat([0, 1], [20, 30])
    >>> np.bincount(labels[draw_validation(labels, 0.1, np.random.RandomState(0))]).tolist()
    [2, 3]
    """
    mask = np.zeros(len(labels), dtype=np.bool_)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        mask[generator.permutation(members)[: int(share * len(members))]] = True
    return mask


def blur_boundaries(orders: Sequence[Indices], blur: int, generator: np.random.RandomState) -> list[Indices]:
    """``orders``, with the last ``blur`` images before each boundary and the first ``blur`` after it shuffled together.

    At most half of a task is mixed at each of its ends, so no image crosses two boundaries. The lengths stay the same.

    >>> before, after = blur_boundaries([np.arange(6), np.arange(6, 12)], 2, np.random.RandomState(0))
    >>> before[:4].tolist(), sorted([*before[4:].tolist(), *after[:2].tolist()]), after[2:].tolist()
    ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11])
    """
    stream = np.concatenate(orders)
    boundary = 0
    for order, following in pairwise(orders):
        boundary += len(order)
        mixed = slice(boundary - min(blur, len(order) // 2), boundary + min(blur, len(following) // 2))
        stream[mixed] = generator.permutation(stream[mixed])
    return np.split(stream, np.cumsum([len(order) for order in orders])[:-1])


def to_tensor(indices: Indices) -> torch.Tensor:
    """Indices as an int64 tensor."""
    return torch.from_numpy(indices.astype(np.int64))
