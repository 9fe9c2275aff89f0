"""The kinds of streams whose tasks are sets of classes. Each is a function that returns a manifest."""

from __future__ import annotations

from itertools import islice

from climb.errors import InputError, unknown
from climb.seeds import frozen_generator
from climb.streams.contract import Images, scenario
from climb.streams.manifest import Manifest, check_int
from climb.streams.sizes import even_sizes, released_sizes, uniform_sizes

GENERATORS = ("uniform", "released")
MOST_CLASSES = 1_000_000
BLUR = 100
"""Images on each side of a boundary that `blurred` mixes by default."""


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


# -- by name -----------------------------------------------------------------------------------------------------------


@scenario("regular")
def _regular(images: Images, *, tasks: int, seed: int, validation: float = 0.1) -> Manifest:
    """Classes in random order, in tasks of equal size."""
    return make("regular", images.classes, tasks, seed=seed, validation=validation)


@scenario("irregular")
def _irregular(
    images: Images,
    *,
    tasks: int,
    seed: int,
    validation: float = 0.1,
    cap: int | None = None,
    generator: str | None = None,
) -> Manifest:
    """Classes in random order, in tasks of random size."""
    return make("irregular", images.classes, tasks, seed=seed, validation=validation, cap=cap, generator=generator)


@scenario("blurred")
def _blurred(images: Images, *, tasks: int, seed: int, validation: float = 0.1, blur: int | None = None) -> Manifest:
    """The tasks of regular, with images on both sides of every boundary mixed."""
    return make("blurred", images.classes, tasks, seed=seed, validation=validation, blur=blur)


@scenario("iid")
def _iid(images: Images, *, tasks: int, seed: int, validation: float = 0.1) -> Manifest:
    """All classes at all times, cut into tasks for evaluation."""
    return make("iid", images.classes, tasks, seed=seed, validation=validation)
