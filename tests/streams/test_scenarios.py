from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from climb.errors import InputError
from climb.streams import KINDS, Manifest, blurred, iid, irregular, make, regular


@given(data=st.data(), kind=st.sampled_from(KINDS), classes=st.integers(1, 60), seed=st.integers(0, 2**40))
def test_tasks_partition_the_classes(data: st.DataObject, kind: str, classes: int, seed: int) -> None:
    tasks = data.draw(st.integers(1, classes))
    cap = classes if kind == "irregular" else None
    manifest = make(kind, classes, tasks, seed=seed, cap=cap)
    assert (manifest.kind, manifest.seed, manifest.classes) == (kind, seed, classes)
    assert len(manifest.tasks) == tasks
    assert sorted(c for task in manifest.tasks for c in task) == list(range(classes))


def test_seven_tasks_of_a_hundred_classes_differ_by_at_most_one() -> None:
    sizes = [len(task) for task in regular(100, 7, seed=0).tasks]
    assert sorted(sizes) == [14, 14, 14, 14, 14, 15, 15]


def test_all_kinds_of_one_seed_share_the_class_order() -> None:
    flat = [[c for task in make(kind, 100, 20, seed=3).tasks for c in task] for kind in KINDS]
    assert flat[0] == flat[1] == flat[2] == flat[3]
    assert flat[0] != [c for task in regular(100, 20, seed=4).tasks for c in task]


@pytest.mark.parametrize(("tasks", "cap"), [(20, 12), (50, 5), (10, 24), (7, 35)])
def test_the_default_cap_is_the_papers_or_a_multiple_of_the_mean(tasks: int, cap: int) -> None:
    for seed in range(20):
        manifest = irregular(100, tasks, seed=seed)
        assert manifest == irregular(100, tasks, seed=seed, cap=cap)
        assert max(len(task) for task in manifest.tasks) <= cap


def test_the_paper_caps_hold_for_any_number_of_classes() -> None:
    assert irregular(60, 20, seed=0) == irregular(60, 20, seed=0, cap=12)
    assert irregular(200, 50, seed=0) == irregular(200, 50, seed=0, cap=5)
    with pytest.raises(InputError, match="a cap of 50 or more"):
        irregular(1000, 20, seed=0)


def test_generators_differ_and_seeds_differ() -> None:
    assert irregular(100, 20, seed=0).tasks != irregular(100, 20, seed=0, generator="released").tasks
    sizes = {tuple(map(len, irregular(100, 20, seed=seed).tasks)) for seed in range(20)}
    assert len(sizes) == 20


UNIFORM = [1, 7, 6, 11, 4, 6, 2, 4, 4, 5, 8, 8, 9, 1, 4, 5, 1, 6, 4, 4]
RELEASED = [10, 2, 6, 3, 4, 2, 6, 9, 2, 8, 10, 6, 1, 7, 2, 1, 1, 9, 7, 4]


def test_draws_are_frozen() -> None:
    # Users share manifests by their seeds, too: these numbers must never change.
    assert regular(10, 5, seed=0).tasks == ((0, 1), (9, 6), (7, 2), (4, 5), (3, 8))
    assert list(map(len, irregular(100, 20, seed=0).tasks)) == UNIFORM
    # The number of compositions fills whole bytes, so the rank is drawn from no extra byte.
    assert list(map(len, irregular(100, 10, seed=0).tasks)) == [15, 1, 5, 23, 7, 13, 1, 23, 5, 7]
    assert list(map(len, irregular(100, 20, seed=0, generator="released").tasks)) == RELEASED


def test_make_passes_every_option_on() -> None:
    assert make("regular", 10, 3, seed=1, validation=0.2) == regular(10, 3, seed=1, validation=0.2)
    assert make("iid", 10, 3, seed=1, validation=0.2) == iid(10, 3, seed=1, validation=0.2)
    assert make("blurred", 10, 3, seed=1) == blurred(10, 3, seed=1, blur=100)
    assert make("blurred", 10, 3, seed=1, blur=7) == blurred(10, 3, seed=1, blur=7)
    assert make("irregular", 10, 3, seed=1, cap=4) == irregular(10, 3, seed=1, cap=4)
    released = make("irregular", 10, 3, seed=1, generator="released", validation=0.3)
    assert released == irregular(10, 3, seed=1, generator="released", validation=0.3)


def test_numpy_counts_and_seeds_are_as_good_as_plain_ones() -> None:
    given = irregular(np.int64(30), np.int64(5), seed=np.int64(2))  # type: ignore[arg-type]
    assert given == irregular(30, 5, seed=2)
    assert Manifest.from_json(given.to_json()) == given


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make("iregular", 10, 2, seed=0), "did you mean 'irregular'"),
        (lambda: make("regular", 10, 2, seed=0, blur=5), "blur was given .* only 'blurred' has it"),
        (lambda: make("blurred", 10, 2, seed=0, cap=5), "cap was given .* only 'irregular' has it"),
        (lambda: make("iid", 10, 2, seed=0, generator="released"), "generator was given"),
        (lambda: regular(10, 11, seed=0), "use 1 to 10 tasks"),
        (lambda: regular(10, 0, seed=0), "tasks must be 1 or more, not 0"),
        (lambda: regular(0, 1, seed=0), "classes must be 1 or more"),
        (lambda: regular(10, 2.0, seed=0), "tasks must be a whole number, not 2.0"),  # type: ignore[arg-type]
        (lambda: irregular(10, 2, seed=0, cap=4), "a cap of 5 or more"),
        (lambda: irregular(10, 2, seed=0, cap=0), "cap must be 1 or more"),
        (lambda: irregular(10, 2, seed=0, cap=5, generator="released"), "no cap"),
        (lambda: irregular(10, 2, seed=0, generator="release"), "did you mean 'released'"),
        (lambda: blurred(10, 2, seed=0, blur=0), "needs blur of 1 or more, every other kind blur 0"),
    ],
)
def test_bad_input_is_named(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
