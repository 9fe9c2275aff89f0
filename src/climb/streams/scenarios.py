"""The kinds of streams. Each is a function that returns a manifest."""

from __future__ import annotations

import math
from itertools import accumulate, islice, pairwise

import numpy as np

from climb.errors import InputError, unknown
from climb.seeds import frozen_generator
from climb.streams.manifest import Manifest, check_int

GENERATORS = ("uniform", "released")
MOST_CLASSES = 1_000_000
BLUR = 100
"""Images on each side of a boundary that `blurred` mixes by default."""

# The rank is drawn with this many bits more than it needs. Then no composition is more likely than another by more
# than one part in 2**128, and the number of random bytes is known in advance.
_SPARE_BITS = 128


def regular(classes: int, tasks: int, *, seed: int, validation: float = 0.1) -> Manifest:
    """Classes in random order, in tasks of equal size. Sizes differ by at most one.

    >>> regular(7, 3, seed=0).tasks
    ((1, 6), (5, 2), (4, 3, 0))
    """
    return make("regular", classes, tasks, seed=seed, validation=validation)


def irregular(
    classes: int, tasks: int, *, seed: int, cap: int | None = None, generator: str = "uniform", validation: float = 0.1
) -> Manifest:
    """Classes in random order, in tasks of random size.

    The sizes depend on the seed and the counts alone, so two datasets with equally many classes share them.

    Args:
        classes: number of classes.
        tasks: number of tasks.
        seed: seed of all random choices.
        cap: largest task of generator "uniform". None takes 12 for 20 tasks and 5 for 50, as in the CLIMB paper,
            otherwise 2.4 times the mean size, rounded up.
        generator: "uniform" draws uniformly from all ways to cut the classes into tasks of 1 to ``cap`` classes.
            "released" draws as the paper's released code does, without a cap.
        validation: share of each class that is held out.

    >>> [len(task) for task in irregular(20, 5, seed=0).tasks]
    [3, 6, 1, 5, 5]
    """
    return make("irregular", classes, tasks, seed=seed, validation=validation, cap=cap, generator=generator)


def blurred(classes: int, tasks: int, *, seed: int, blur: int = BLUR, validation: float = 0.1) -> Manifest:
    """The tasks of `regular`, with ``blur`` images on each side of every boundary mixed.

    >>> blurred(6, 3, seed=0).tasks == regular(6, 3, seed=0).tasks
    True
    """
    return make("blurred", classes, tasks, seed=seed, validation=validation, blur=blur)


def iid(classes: int, tasks: int, *, seed: int, validation: float = 0.1) -> Manifest:
    """All classes at all times. The stream is cut into ``tasks`` segments for evaluation.

    >>> iid(6, 3, seed=0).kind
    'iid'
    """
    return make("iid", classes, tasks, seed=seed, validation=validation)


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
    """The manifest of a kind given by name. Options that the kind does not have raise an InputError.

    >>> make("blurred", 10, 5, seed=0, blur=20) == blurred(10, 5, seed=0, blur=20)
    True
    """
    for option, value in {"cap": cap, "generator": generator, "blur": blur}.items():
        owner = "blurred" if option == "blur" else "irregular"
        if value is not None and kind != owner:
            raise InputError(f"{option} was given for a stream of kind '{kind}'; only '{owner}' has it")
    classes, tasks = check_int(classes, "classes", least=1), check_int(tasks, "tasks", least=1)
    if classes > MOST_CLASSES:
        raise InputError(f"classes must be at most {MOST_CLASSES:,}; given {classes}")
    if tasks > classes:
        raise InputError(f"{classes} classes cannot be cut into {tasks} tasks; use 1 to {classes} tasks")
    sizes = even_sizes(classes, tasks)
    if kind == "irregular":
        sizes = _random_sizes(classes, tasks, seed, cap, generator)
    order = iter(frozen_generator(seed, "class order").permutation(classes).tolist())
    cut = tuple(tuple(islice(order, size)) for size in sizes)
    blur = BLUR if kind == "blurred" and blur is None else blur or 0
    return Manifest(kind=kind, tasks=cut, seed=seed, validation=validation, blur=blur)


# -- sizes of tasks ----------------------------------------------------------------------------------------------------


def _random_sizes(classes: int, tasks: int, seed: int, cap: int | None, generator: str | None) -> tuple[int, ...]:
    """The sizes of the tasks of `irregular`."""
    draws = frozen_generator(seed, "task sizes")
    if generator == "released":
        if cap is not None:
            raise InputError(f"the released generator has no cap, not {cap}; use generator 'uniform'")
        return released_sizes(classes, tasks, draws)
    if generator not in ("uniform", None):
        raise unknown("generator of task sizes", str(generator), GENERATORS)
    default = {20: 12, 50: 5}.get(tasks, -(-12 * classes // (5 * tasks)))
    return uniform_sizes(classes, tasks, default if cap is None else check_int(cap, "cap", least=1), draws)


def even_sizes(total: int, parts: int) -> tuple[int, ...]:
    """``parts`` sizes that sum to ``total`` and differ by at most one. The larger ones are spread evenly.

    >>> even_sizes(10, 4)
    (2, 3, 2, 3)
    """
    edges = [total * part // parts for part in range(parts + 1)]
    return tuple(after - before for before, after in pairwise(edges))


def uniform_sizes(total: int, parts: int, cap: int, generator: np.random.RandomState) -> tuple[int, ...]:
    """A composition of ``total`` into ``parts`` sizes from 1 to ``cap``, drawn uniformly from all of them.

    >>> uniform_sizes(6, 3, 2, np.random.RandomState(0))
    (2, 2, 2)
    """
    if not parts <= total <= parts * cap:
        wanted = f"{parts} tasks of 1 to {cap} classes, which hold {parts} to {parts * cap}"
        use = f"use at most {total} tasks and a cap of {-(-total // parts)} or more"
        raise InputError(f"{total} classes cannot be cut into {wanted}; {use}")
    # Draw the rank of a composition in lexicographic order, then read off its sizes.
    ways = count_compositions(total, parts, cap)
    length = (ways[parts][total].bit_length() + _SPARE_BITS + 7) // 8
    rank = int.from_bytes(generator.bytes(length), "little") * ways[parts][total] >> (8 * length)
    sizes = []
    for left in range(parts - 1, -1, -1):
        size = 1
        # Skip the compositions that continue with a smaller size.
        while rank >= ways[left][total - size]:
            rank -= ways[left][total - size]
            size += 1
        sizes.append(size)
        total -= size
    return tuple(sizes)


def count_compositions(total: int, parts: int, cap: int) -> list[list[int]]:
    """``ways[k][s]``: the exact number of sequences of ``k`` sizes from 1 to ``cap`` that sum to ``s``.

    >>> count_compositions(6, 3, 3)[3][6]
    7
    """
    ways = [[1] + [0] * total]
    for _ in range(parts):
        # sums[s] is the sum of the previous row before s, so a window of that row is one subtraction.
        sums = list(accumulate(ways[-1], initial=0))
        ways.append([sums[s] - sums[max(s - cap, 0)] for s in range(total + 1)])
    return ways


def released_sizes(total: int, parts: int, generator: np.random.RandomState) -> tuple[int, ...]:
    """``parts`` sizes that sum to ``total``, drawn as in the code released with the CLIMB paper.

    There is no upper bound, and early tasks tend to be larger. Use it only to compare with published numbers.

    >>> sum(released_sizes(100, 20, np.random.RandomState(0)))
    100
    """
    # Scale uniform numbers to the total, round down, raise zeros to one, then add the rest from the first task on.
    draws = generator.random_sample(parts).tolist()
    norm = math.fsum(draws)  # fsum rounds once, so all machines scale alike
    sizes = [max(math.floor(draw / norm * total), 1) for draw in draws]
    # Rounding down loses less than one a task, so no task gets more than one.
    for task in range(total - sum(sizes)):
        sizes[task] += 1
    while sum(sizes) > total:
        sizes[sizes.index(max(sizes))] -= 1
    return tuple(sizes)
