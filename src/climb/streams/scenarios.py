"""The kinds of stream there are, each as a function that writes its manifest."""

from __future__ import annotations

from collections.abc import Sequence

from climb.errors import InputError, unknown
from climb.seeds import frozen_generator
from climb.streams.even_sizes import even_sizes
from climb.streams.manifest import KINDS, Manifest
from climb.streams.released_sizes import released_sizes
from climb.streams.uniform_sizes import uniform_sizes
from climb.streams.whole_number import whole_number

GENERATORS = ("uniform", "released")


def regular(classes: int, tasks: int, *, seed: int, validation: float = 0.1) -> Manifest:
    """Classes in random order, in tasks of equal size: sizes differ by at most one when it does not divide.

    >>> regular(7, 3, seed=0).tasks
    ((1, 6), (5, 2), (4, 3, 0))
    """
    classes, tasks = _counts(classes, tasks)
    groups = _grouped(even_sizes(classes, tasks), seed)
    return Manifest(kind="regular", tasks=groups, seed=seed, validation=validation)


def irregular(
    classes: int,
    tasks: int,
    *,
    seed: int,
    cap: int | None = None,
    generator: str = "uniform",
    validation: float = 0.1,
) -> Manifest:
    """Classes in random order, in tasks of random size.

    ``generator`` "uniform": all ways to cut into tasks of 1 to ``cap`` classes are equally likely. Without a
    ``cap``: 12 for 20 tasks and 5 for 50, as in the CLIMB paper, otherwise 2.4 times the mean size, rounded
    up. "released": the sizes of the paper's released code, which has no cap. The sizes depend on the seed and
    the counts alone, so that two datasets of as many classes share them.

    >>> [len(task) for task in irregular(20, 5, seed=0).tasks]
    [3, 6, 1, 5, 5]
    """
    classes, tasks = _counts(classes, tasks)
    draws = frozen_generator(seed, "task sizes")
    if generator == "uniform":
        cap = _default_cap(classes, tasks) if cap is None else whole_number(cap, "cap", least=1)
        sizes = uniform_sizes(classes, tasks, cap, draws)
    elif generator == "released":
        if cap is not None:
            raise InputError(f"the released generator has no cap, not {cap}; use generator 'uniform'")
        sizes = released_sizes(classes, tasks, draws)
    else:
        raise unknown("generator of task sizes", str(generator), GENERATORS)
    return Manifest(kind="irregular", tasks=_grouped(sizes, seed), seed=seed, validation=validation)


def blurred(classes: int, tasks: int, *, seed: int, blur: int = 100, validation: float = 0.1) -> Manifest:
    """The tasks of `regular`, with ``blur`` images on each side of every boundary mixed.

    >>> blurred(6, 3, seed=0).tasks == regular(6, 3, seed=0).tasks
    True
    """
    classes, tasks = _counts(classes, tasks)
    groups = _grouped(even_sizes(classes, tasks), seed)
    return Manifest(kind="blurred", tasks=groups, seed=seed, validation=validation, blur=blur)


def iid(classes: int, tasks: int, *, seed: int, validation: float = 0.1) -> Manifest:
    """All classes at all times: ``tasks`` only says into how many segments the stream is cut.

    >>> iid(6, 3, seed=0).kind
    'iid'
    """
    classes, tasks = _counts(classes, tasks)
    groups = _grouped(even_sizes(classes, tasks), seed)
    return Manifest(kind="iid", tasks=groups, seed=seed, validation=validation)


def make(
    kind: str,
    classes: int,
    tasks: int,
    *,
    seed: int,
    validation: float = 0.1,
    cap: int | None = None,
    generator: str | None = None,
    blur: int | None = None,
) -> Manifest:
    """The manifest of the kind of that name; an option that the kind does not have is refused.

    >>> make("blurred", 10, 5, seed=0, blur=20) == blurred(10, 5, seed=0, blur=20)
    True
    """
    if kind not in KINDS:
        raise unknown("kind of stream", str(kind), KINDS)
    for option, value, owner in (
        ("cap", cap, "irregular"),
        ("generator", generator, "irregular"),
        ("blur", blur, "blurred"),
    ):
        if value is not None and kind != owner:
            raise InputError(f"{option} was given for a stream of kind '{kind}'; only '{owner}' has it")
    if kind == "irregular":
        generator = "uniform" if generator is None else generator
        return irregular(classes, tasks, seed=seed, cap=cap, generator=generator, validation=validation)
    if kind == "blurred":
        return blurred(classes, tasks, seed=seed, blur=100 if blur is None else blur, validation=validation)
    plain = regular if kind == "regular" else iid
    return plain(classes, tasks, seed=seed, validation=validation)


def _counts(classes: int, tasks: int) -> tuple[int, int]:
    classes = whole_number(classes, "classes", least=1)
    tasks = whole_number(tasks, "tasks", least=1)
    if tasks > classes:
        raise InputError(f"{classes} classes cannot be cut into {tasks} tasks; use 1 to {classes} tasks")
    return classes, tasks


def _default_cap(classes: int, tasks: int) -> int:
    paper = {20: 12, 50: 5}
    return paper.get(tasks, -(-12 * classes // (5 * tasks)))


def _grouped(sizes: Sequence[int], seed: int) -> tuple[tuple[int, ...], ...]:
    """Classes in the seed's random order, cut into groups of ``sizes``."""
    order = iter(frozen_generator(seed, "class order").permutation(sum(sizes)).tolist())
    return tuple(tuple(next(order) for _ in range(size)) for size in sizes)
