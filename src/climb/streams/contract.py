"""What a scenario is: a function from the labels of a dataset to a manifest, registered by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from climb.errors import InputError, unknown
from climb.registry import Registry
from climb.seeds import frozen_generator
from climb.streams.manifest import ListedGroup, ListedSegment, Manifest
from climb.streams.stream import draw_validation

Array = npt.NDArray[np.int64]
Scenario = Callable[..., Manifest]

SCENARIOS = Registry[Scenario](
    "scenario",
    builtin=["climb.streams"],
    expects="a function that takes climb.streams.Images and returns a climb.streams.Manifest",
)
"""The scenarios by name."""

scenario = SCENARIOS.register
"""Decorator ``@scenario("name")`` that registers a function.

It takes `Images` and the keywords ``tasks``, ``seed`` and ``validation``. Without ``tasks`` it decides their number
itself. Its further keywords are options: ``StreamConfig(kind="name", options={...})``.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Images:
    """What a scenario knows about the images of a dataset."""

    train_labels: torch.Tensor
    """int64 (n,), on the CPU."""
    test_labels: torch.Tensor
    """int64 (m,), on the CPU."""
    classes: int
    """Number of classes."""
    train_names: tuple[str, ...] = ()
    """File names of the training images, relative to the dataset; () if the images are not in files."""
    test_names: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    """Names of the domains; () for a dataset without domains."""
    train_domains: torch.Tensor | None = None
    """int64 (n,): the domain of each training image."""
    test_domains: torch.Tensor | None = None


def make_manifest(
    kind: str,
    images: Images,
    *,
    tasks: int,
    seed: int,
    validation: float = 0.1,
    options: Mapping[str, Any] | None = None,
) -> Manifest:
    """The manifest of a registered scenario. Options that the scenario does not have raise an InputError.

    >>> images = Images(train_labels=torch.arange(40) % 4, test_labels=torch.arange(8) % 4, classes=4)
    >>> manifest = make_manifest("recurring", images, tasks=2, seed=0, options={"return_share": 0.25})
    >>> [(segment.groups, len(segment.images)) for segment in manifest.segments]
    [((0,), 14), ((1,), 14), ((0,), 4), ((1,), 4)]
    """
    build, given = SCENARIOS.find(kind), dict(options or {})
    for option, value in given.items():
        if value is not None and option not in _keywords(build):
            owners = " and ".join(f"'{name}'" for name, other in SCENARIOS.items() if option in _keywords(other))
            has = "has" if owners.count("'") == 2 else "have"
            only = f"only {owners} {has} it" if owners else f"it has {', '.join(_keywords(build)) or 'no options'}"
            raise InputError(f"{option} was given for a stream of kind '{kind}'; {only}")
    if takes_tasks(kind):
        given["tasks"] = tasks
    manifest = build(images, seed=seed, validation=validation, **given)
    if not isinstance(manifest, Manifest):
        raise InputError(f"scenario '{kind}' returned {type(manifest).__name__}; it must return a Manifest")
    return manifest


def takes_tasks(kind: str) -> bool:
    """Whether the number of tasks of a scenario can be chosen.

    >>> takes_tasks("regular"), takes_tasks("domain")
    (True, False)
    """
    return "tasks" in inspect.signature(SCENARIOS.find(kind)).parameters


def _keywords(build: Scenario) -> list[str]:
    general = ("images", "tasks", "seed", "validation")
    return [name for name in inspect.signature(build).parameters if name not in general]


def list_images(
    kind: str,
    images: Images,
    train_groups: Array,
    test_groups: Array,
    names: Sequence[str],
    *,
    seed: int,
    validation: float = 0.1,
    segments: Sequence[Array] | None = None,
) -> Manifest:
    """A manifest from the evaluation group of each image.

    A ``validation`` share of each class in each group is held out. Groups are numbered as they are shown.

    Args:
        kind: name of the scenario.
        images: the images.
        train_groups: (n,) the group of each training image; -1 leaves an image out.
        test_groups: (m,) the group of each test image; -1 leaves an image out.
        names: the name of each group.
        seed: seed of all random choices.
        validation: share that is held out.
        segments: training images of each segment in order of arrival. Without it, each group is a segment, and its
            images arrive in random order.

    >>> images = Images(train_labels=torch.zeros(6, dtype=torch.int64), test_labels=torch.zeros(2), classes=1)
    >>> manifest = list_images("halves", images, np.arange(6) // 3, np.arange(2), ["early", "late"], seed=0)
    >>> [group.name for group in manifest.groups], [sorted(segment.images) for segment in manifest.segments]
    (['early', 'late'], [[0, 1, 2], [3, 4, 5]])
    """
    strata = train_groups * images.classes + images.train_labels.numpy()
    held_out = draw_validation(strata, validation, frozen_generator(seed, "split"))
    if segments is None:
        shuffle = frozen_generator(seed, "stream order")
        segments = [shuffle.permutation(np.flatnonzero(train_groups == group)) for group in range(len(names))]
    arrivals = [own[~held_out[own] & (train_groups[own] >= 0)] for own in segments]
    if empty := [number for number, own in enumerate(arrivals) if len(own) == 0]:
        raise InputError(f"scenario '{kind}': segment {empty[0]} of {len(arrivals)} has no image; use fewer tasks")
    stream = np.concatenate(arrivals)
    shown = list(dict.fromkeys(train_groups[stream].tolist()))
    groups = []
    for group in shown:
        own_test = np.flatnonzero(test_groups == group)
        if len(own_test) == 0:
            raise InputError(
                f"scenario '{kind}': group '{names[group]}' has no test image, so its accuracy cannot be measured; use "
                "fewer tasks, or more test images"
            )
        groups.append(
            ListedGroup(
                name=names[group],
                train=_plain(stream[train_groups[stream] == group]),
                validation=_plain(np.flatnonzero((train_groups == group) & held_out)),
                test=_plain(own_test),
            )
        )
    number = {group: place for place, group in enumerate(shown)}
    listed = tuple(
        ListedSegment(
            groups=tuple(sorted(number[group] for group in set(train_groups[own].tolist()))), images=_plain(own)
        )
        for own in arrivals
    )
    return Manifest(kind=kind, tasks=(), seed=seed, validation=validation, groups=tuple(groups), segments=listed)


def _plain(indices: Array) -> tuple[int, ...]:
    return tuple(indices.tolist())


def find_domain(name: str, images: Images) -> int:
    """The number of a domain."""
    if name not in images.domains:
        raise unknown("domain", name, images.domains)
    return images.domains.index(name)


def domains_of(kind: str, images: Images) -> tuple[Array, Array]:
    """The domain of each training and test image; an InputError for a dataset without domains."""
    if images.train_domains is None or images.test_domains is None:
        raise InputError(
            f"scenario '{kind}' needs images by domain; give --dataset domains --data FOLDER, with images in "
            "FOLDER/<domain>/<class>/"
        )
    return images.train_domains.numpy(), images.test_domains.numpy()
