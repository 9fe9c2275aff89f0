from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from climb.errors import InputError
from climb.evaluation import Labelled, LinearProbeConfig, evaluate, fit_linear_probe
from climb.precision import threads

QUICK = LinearProbeConfig(epochs=8, batch_size=64)
CLASSES = 6


@dataclass(frozen=True)
class Task:
    train: torch.Tensor
    validation: torch.Tensor
    test: torch.Tensor


@pytest.fixture
def data(blobs) -> Labelled:
    train, train_labels = blobs(900, classes=CLASSES, spread=1.5)
    test, test_labels = blobs(600, classes=CLASSES, spread=1.5, seed=1)
    return Labelled(train_features=train, train_labels=train_labels, test_features=test, test_labels=test_labels)


def by_class(data: Labelled, *groups: tuple[int, ...]) -> list[Task]:
    """One task per group of classes; every tenth training row is held out."""
    tasks = []
    for group in groups:
        own = torch.isin(data.train_labels, torch.tensor(group)).nonzero().flatten()
        held_out = own % 10 == 0
        tested = torch.isin(data.test_labels, torch.tensor(group)).nonzero().flatten()
        tasks.append(Task(train=own[~held_out], validation=own[held_out], test=tested))
    return tasks


def rows(tasks: list[Task], part: str) -> torch.Tensor:
    return torch.cat([getattr(task, part) for task in tasks])


def test_the_joint_probe_learns_from_all_tasks_and_answers_for_each(data: Labelled) -> None:
    tasks = by_class(data, (4,), (0, 3, 5), (1, 2))
    row = evaluate(data, tasks, after=0, classes=CLASSES, config=QUICK, seed=5)
    train, validation = rows(tasks, "train"), rows(tasks, "validation")
    probe = fit_linear_probe(
        data.train_features[train],
        data.train_labels[train],
        data.train_features[validation],
        data.train_labels[validation],
        classes=CLASSES,
        config=QUICK,
        seed=5,
    )
    expected = [probe.accuracy(data.test_features[task.test], data.test_labels[task.test]) for task in tasks]
    assert list(row.per_task) == pytest.approx(expected)
    assert row.joint == pytest.approx(probe.accuracy(data.test_features, data.test_labels))
    assert len(set(row.per_task)) > 1


def test_the_up_to_probe_knows_only_the_classes_so_far(data: Labelled) -> None:
    tasks = by_class(data, (4,), (0, 3, 5), (1, 2))
    row = evaluate(data, tasks, after=1, classes=CLASSES, config=QUICK, seed=5)
    seen = torch.tensor([0, 3, 4, 5])
    relabelled = torch.full((CLASSES,), -1)
    relabelled[seen] = torch.arange(4)
    train, validation = rows(tasks[:2], "train"), rows(tasks[:2], "validation")
    probe = fit_linear_probe(
        data.train_features[train],
        relabelled[data.train_labels[train]],
        data.train_features[validation],
        relabelled[data.train_labels[validation]],
        classes=4,
        config=QUICK,
        seed=5,
    )
    accuracies = [
        probe.accuracy(data.test_features[task.test], relabelled[data.test_labels[task.test]]) for task in tasks[:2]
    ]
    counts = [len(task.test) for task in tasks[:2]]
    assert row.upto == pytest.approx(sum(accuracies) / 2)
    assert row.upto_per_image == pytest.approx(
        sum(accuracy * count for accuracy, count in zip(accuracies, counts, strict=True)) / sum(counts)
    )
    assert row.upto != pytest.approx(row.upto_per_image)


def test_after_one_class_the_up_to_probe_cannot_be_wrong(data: Labelled) -> None:
    row = evaluate(data, by_class(data, (4,), (0, 1, 2, 3, 5)), after=0, classes=CLASSES, config=QUICK, seed=0)
    assert row.upto == 100.0
    assert row.per_task[0] < 100.0


def test_after_the_last_task_both_probes_are_one(data: Labelled) -> None:
    tasks = by_class(data, (4, 1), (0, 3), (5, 2))
    row = evaluate(data, tasks, after=2, classes=CLASSES, config=QUICK, seed=0)
    assert row.upto == pytest.approx(sum(row.per_task) / 3)
    assert row.upto_per_image == row.joint


def test_classes_that_never_come_change_nothing(data: Labelled) -> None:
    tasks = by_class(data, (4, 1), (0, 3, 5, 2))
    row = evaluate(data, tasks, after=0, classes=CLASSES, config=QUICK, seed=0)
    assert evaluate(data, tasks, after=0, classes=CLASSES + 3, config=QUICK, seed=0) == row


def test_tasks_may_share_classes(data: Labelled) -> None:
    """As in an i.i.d. or domain-incremental stream: a task is its rows, not its labels."""
    generator = torch.Generator().manual_seed(0)
    train, test = torch.randperm(900, generator=generator), torch.randperm(600, generator=generator)
    tasks = [
        Task(train=train[:400], validation=train[400:450], test=test[:200]),
        Task(train=train[450:850], validation=train[850:], test=test[200:]),
    ]
    row = evaluate(data, tasks, after=0, classes=CLASSES, config=QUICK, seed=0)
    assert row.joint == pytest.approx((row.per_task[0] * 200 + row.per_task[1] * 400) / 600)


def test_a_class_without_training_rows_counts_as_wrong(data: Labelled) -> None:
    first, second = by_class(data, (0,), (1, 2, 3, 4, 5))
    stray = second.test[:10]
    tasks = [
        replace(
            first,
            test=torch.cat([first.test, stray]),
            validation=torch.cat([first.validation, second.validation[:5]]),
        ),
        replace(second, test=second.test[10:], validation=second.validation[5:]),
    ]
    row = evaluate(data, tasks, after=0, classes=CLASSES, config=QUICK, seed=0)
    assert row.upto == pytest.approx(100 * len(first.test) / (len(first.test) + 10))


def test_small_tasks_without_held_out_rows_are_evaluated(data: Labelled) -> None:
    none = torch.empty(0, dtype=torch.int64)
    tasks = [replace(task, validation=none) for task in by_class(data, (0, 1, 2), (3, 4, 5))]
    row = evaluate(data, tasks, after=0, classes=CLASSES, config=QUICK, seed=0)
    assert row.joint > 100 / CLASSES + 20


def test_the_same_seed_gives_the_same_row(data: Labelled) -> None:
    tasks = by_class(data, (0, 1, 2), (3, 4, 5))
    state = torch.get_rng_state()
    row = evaluate(data, tasks, after=0, classes=CLASSES, config=QUICK, seed=3)
    assert row == evaluate(data, tasks, after=0, classes=CLASSES, config=QUICK, seed=3)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_default_configuration_is_the_protocol(data: Labelled) -> None:
    tasks = by_class(data, (0, 1, 2), (3, 4, 5))
    explicit = evaluate(data, tasks, after=1, classes=CLASSES, config=LinearProbeConfig(), seed=3)
    assert evaluate(data, tasks, after=1, classes=CLASSES, seed=3) == explicit


@pytest.mark.parametrize("after", [-1, 2])
def test_an_experience_that_does_not_exist_is_rejected(data: Labelled, after: int) -> None:
    with pytest.raises(InputError, match=f"after is {after}; with 2 experiences, 0 to 1 is allowed"):
        evaluate(data, by_class(data, (0, 1, 2), (3, 4, 5)), after=after, classes=CLASSES, seed=0)


@pytest.mark.parametrize("part", ["train", "test"])
def test_an_experience_without_rows_is_rejected(data: Labelled, part: str) -> None:
    first, second = by_class(data, (0, 1, 2), (3, 4, 5))
    second = replace(second, **{part: torch.empty(0, dtype=torch.int64)})
    with pytest.raises(InputError, match=f"experience 1 has no {part} rows"):
        evaluate(data, [first, second], after=0, classes=CLASSES, seed=0)


@pytest.mark.parametrize(("part", "row"), [("train", 900), ("validation", -1), ("test", 600)])
def test_rows_outside_the_split_are_rejected(data: Labelled, part: str, row: int) -> None:
    first, second = by_class(data, (0, 1, 2), (3, 4, 5))
    second = replace(second, **{part: torch.tensor([0, row])})
    with pytest.raises(InputError, match=f"experience 1: {part} rows run from"):
        evaluate(data, [first, second], after=0, classes=CLASSES, seed=0)


def test_labels_outside_the_classes_are_rejected(data: Labelled) -> None:
    tasks = by_class(data, (0, 1, 2), (3, 4, 5))
    with pytest.raises(InputError, match="train: labels run from 0 to 5; with 4 classes, 0 to 3 is allowed"):
        evaluate(data, tasks, after=0, classes=4, seed=0)


def test_probes_side_by_side_equal_probes_one_after_the_other(data: Labelled) -> None:
    tasks = by_class(data, (0, 1), (2, 3), (4, 5))
    with threads(1):
        alone = evaluate(data, tasks, after=1, classes=CLASSES, config=QUICK, seed=0)
    precision = torch.get_float32_matmul_precision()
    with threads(2):
        together = evaluate(data, tasks, after=1, classes=CLASSES, config=QUICK, seed=0)
        assert torch.get_num_threads() == 2
    assert together == alone
    assert torch.get_float32_matmul_precision() == precision
