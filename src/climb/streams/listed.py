"""Scenarios that list their images: by domain, with returning tasks, with a long tail, in a natural or given order."""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from climb.errors import InputError, first_few, unknown
from climb.seeds import frozen_generator
from climb.streams.contract import Array, Images, domains_of, find_domain, list_images, scenario
from climb.streams.manifest import Manifest, check_int
from climb.streams.scenarios import regular
from climb.streams.sizes import even_sizes

TASKS_BY = ("class", "domain")
_log = logging.getLogger("climb.streams")


@scenario("domain")
def domain(
    images: Images, *, seed: int, validation: float = 0.1, domains: str | Sequence[str] | None = None
) -> Manifest:
    """One domain after another, each with all its classes; evaluated by domain.

    ``domains`` is their order, such as "photo,sketch"; others are left out. By default all, in the dataset's order.
    """
    of_train, of_test = domains_of("domain", images)
    wanted = domains.split(",") if isinstance(domains, str) else list(domains or images.domains)
    if len(set(wanted)) < len(wanted):
        raise InputError(f"a domain is named twice in domains: {','.join(wanted)}")
    place = np.full(len(images.domains), -1, dtype=np.int64)
    for number, name in enumerate(wanted):
        place[find_domain(name, images)] = number
    return list_images("domain", images, place[of_train], place[of_test], wanted, seed=seed, validation=validation)


@scenario("recurring")
def recurring(
    images: Images,
    *,
    tasks: int,
    seed: int,
    validation: float = 0.1,
    returns: int = 1,
    return_share: float = 0.5,
    tasks_by: str = "class",
) -> Manifest:
    """All tasks one after another; then each returns, in another order, with images not shown before.

    A share ``return_share`` of the images of each task arrives in its ``returns`` returns, the rest when the task is
    first shown. No image arrives twice, so the stream is as long as without returns. ``tasks_by="domain"`` makes each
    domain a task.
    """
    check_int(returns, "returns", least=1)
    if not 0 < return_share < 1:
        raise InputError(f"return_share must be above 0 and below 1; given {return_share}")
    of_train, of_test, names = _tasks(images, tasks, seed, tasks_by)
    if len(names) < 2:
        raise InputError("a task can only return after another one; use at least 2 tasks")
    shuffle, order = frozen_generator(seed, "stream order"), frozen_generator(seed, "returns")
    members = [shuffle.permutation(np.flatnonzero(of_train == task)) for task in range(len(names))]
    shares = [1 - return_share, *[return_share / returns] * returns]
    edges = [0.0, *accumulate(shares)]
    segments, last = [], -1
    for showing in range(len(shares)):
        sequence = order.permutation(len(names)) if showing else np.arange(len(names))
        sequence = np.roll(sequence, -1) if sequence[0] == last else sequence  # no task follows itself
        for task in sequence.tolist():
            first, end = (round(edge * len(members[task])) for edge in edges[showing : showing + 2])
            segments.append(members[task][first:end])
            last = task
    return list_images(
        "recurring", images, of_train, of_test, names, seed=seed, validation=validation, segments=segments
    )


@scenario("long-tailed")
def long_tailed(
    images: Images, *, tasks: int, seed: int, validation: float = 0.1, imbalance: float = 100.0
) -> Manifest:
    """Tasks of equal numbers of classes, whose sizes decay exponentially; test images stay balanced.

    Classes are ranked at random. Of class c with rank r, the share ``imbalance ** (-r / (C - 1))`` of its training
    images is kept, so the largest class is ``imbalance`` times as large as the smallest.
    """
    if not imbalance >= 1:
        raise InputError(f"imbalance must be at least 1; given {imbalance}")
    of_train, of_test, names = _tasks(images, tasks, seed, "class")
    labels, draws = images.train_labels.numpy(), frozen_generator(seed, "class sizes")
    for rank, label in enumerate(draws.permutation(images.classes).tolist()):
        members = draws.permutation(np.flatnonzero(labels == label))
        share = imbalance ** (-rank / max(1, images.classes - 1))
        of_train[members[max(1, round(share * len(members))) :]] = -1
    return list_images("long-tailed", images, of_train, of_test, names, seed=seed, validation=validation)


@scenario("natural")
def natural(images: Images, *, tasks: int, seed: int, validation: float = 0.1) -> Manifest:
    """The images in the order of their file names, numbers by value; cut into tasks of equal length for evaluation.

    Names of frames and of photographs are in the order of time. Test images belong to the task whose time they fall
    into. A dataset without file names keeps its own order, and its test images are cut as its training images are.
    """
    check_int(tasks, "tasks", least=1)
    count, others = len(images.train_labels), len(images.test_labels)
    if tasks > min(count, others):
        raise InputError(f"{count} training and {others} test images cannot be cut into {tasks} tasks")
    edges = list(accumulate(even_sizes(count, tasks)))
    if images.train_names:
        keys = [_natural_key(name) for name in images.train_names]
        order = np.array(sorted(range(count), key=keys.__getitem__), dtype=np.int64)
        begins = [keys[order[edge]] for edge in edges[:-1]]
        of_test = np.array([bisect_right(begins, _natural_key(name)) for name in images.test_names], dtype=np.int64)
    else:
        order = np.arange(count)
        of_test = np.repeat(np.arange(tasks), even_sizes(others, tasks))
    of_train = np.empty(count, dtype=np.int64)
    of_train[order] = np.repeat(np.arange(tasks), even_sizes(count, tasks))
    segments = np.split(order, edges[:-1])
    return list_images(
        "natural", images, of_train, of_test, _numbers(tasks), seed=seed, validation=validation, segments=segments
    )


@scenario("custom")
def custom(
    images: Images,
    *,
    tasks: int,
    seed: int,
    validation: float = 0.1,
    order: Sequence[Sequence[int | str]] = (),
) -> Manifest:
    """Your own order: training images by index or by file name, in segments.

    A list in one piece is cut into ``tasks`` of equal length. A class (in a dataset with domains: a domain) is
    evaluated with the segment in which most of its images arrive. Test images in the list are skipped.
    """
    if not order or not any(order):
        raise InputError("scenario 'custom' needs an order: --order FILE with an index or a file name per line")
    found = _find(images, [entry for segment in order for entry in segment])
    ends = list(accumulate(len(segment) for segment in order))
    if len(order) == 1:
        if check_int(tasks, "tasks", least=1) > ends[-1]:
            raise InputError(f"an order of {ends[-1]} images cannot be cut into {tasks} tasks")
        ends = list(accumulate(even_sizes(ends[-1], tasks)))
    segments = [part[part >= 0] for part in np.split(found, ends[:-1])]
    has_domains = images.train_domains is not None and images.test_domains is not None
    keys = domains_of("custom", images) if has_domains else (images.train_labels.numpy(), images.test_labels.numpy())
    counts = np.stack([np.bincount(keys[0][own], minlength=int(keys[0].max()) + 1) for own in segments])
    group_of_key = np.where(counts.sum(axis=0) > 0, counts.argmax(axis=0), -1)
    listed = np.zeros(len(keys[0]), dtype=np.bool_)
    listed[np.concatenate(segments)] = True
    of_train, of_test = np.where(listed, group_of_key[keys[0]], -1), group_of_key[keys[1]]
    names = _numbers(len(segments))
    return list_images("custom", images, of_train, of_test, names, seed=seed, validation=validation, segments=segments)


def _tasks(images: Images, tasks: int, seed: int, by: str) -> tuple[Array, Array, list[str]]:
    """The task of each training and test image, and the names of the tasks."""
    if by not in TASKS_BY:
        raise unknown("tasks_by", str(by), TASKS_BY)
    if by == "domain":
        of_train, of_test = domains_of("recurring", images)
        return of_train, of_test, list(images.domains)
    task_of_class = np.empty(images.classes, dtype=np.int64)
    for task, own in enumerate(regular(images.classes, tasks, seed=seed).tasks):
        task_of_class[list(own)] = task
    return task_of_class[images.train_labels.numpy()], task_of_class[images.test_labels.numpy()], _numbers(tasks)


def _numbers(tasks: int) -> list[str]:
    return [str(number) for number in range(1, tasks + 1)]


def _natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sorts "9.jpg" before "10.jpg". Folders count only between equal file names.

    >>> sorted(["b/10.jpg", "a/9.jpg", "a/10.jpg"], key=_natural_key)
    ['a/9.jpg', 'a/10.jpg', 'b/10.jpg']
    """
    parts = re.split(r"(\d+)", name.rpartition("/")[2])
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts if part], name


def _find(images: Images, entries: Sequence[int | str]) -> Array:
    """The training image of each entry, an index or a file name; -1 for a test image."""
    count = len(images.train_labels)
    if all(isinstance(entry, int) and not isinstance(entry, bool) for entry in entries):
        found = np.array(entries, dtype=np.int64)
        if outside := [index for index in found.tolist() if not 0 <= index < count]:
            raise InputError(f"the order names image {first_few(outside)}; the dataset has images 0 to {count - 1}")
    else:
        if not images.train_names:
            raise InputError("the order names files, but the images of this dataset are not in files; give indices")
        places = {name: place for place, name in enumerate(images.train_names)} | dict.fromkeys(images.test_names, -1)
        for entry in entries:
            if entry not in places:
                raise unknown("file in the order", entry, images.train_names[:10_000])
        found = np.array([places[str(entry)] for entry in entries], dtype=np.int64)
        if skipped := int((found < 0).sum()):
            _log.info("%d of %d files in the order are test images, and skipped", skipped, len(entries))
    known, times = np.unique(found[found >= 0], return_counts=True)
    if repeated := known[times > 1].tolist():
        texts = [images.train_names[index] if images.train_names else str(index) for index in repeated]
        raise InputError(f"an image arrives once; more than once in the order: {first_few(texts)}")
    return found
