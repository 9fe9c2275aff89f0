"""One row of the accuracy matrix: the accuracy of the current features on every task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch

from climb.errors import InputError
from climb.evaluation.features import check_label_range, check_pair
from climb.evaluation.linear import LinearProbeConfig, fit_linear_probe
from climb.precision import full_float32, threads


class Experience(Protocol):
    """The rows of one task in a dataset. All int64 (k,)."""

    @property
    def train(self) -> torch.Tensor:
        """Training rows of the training split."""

    @property
    def validation(self) -> torch.Tensor:
        """Validation rows of the training split."""

    @property
    def test(self) -> torch.Tensor:
        """Rows of the test split."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """The features and labels of a whole dataset, all on one device."""

    train_features: torch.Tensor
    """float32 (n, f): the whole training split, including validation rows. Experiences index it."""
    train_labels: torch.Tensor
    """int64 (n,)."""
    test_features: torch.Tensor
    """float32 (m, f): the whole test split."""
    test_labels: torch.Tensor
    """int64 (m,)."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Accuracies after one task, in percent."""

    per_task: tuple[float, ...]
    """Accuracy on each experience, including future ones, of a probe trained on all experiences."""
    joint: float
    """Accuracy of the same probe on all test images together."""
    upto: float
    """Mean accuracy on the experiences so far of a second probe, trained on these only."""
    upto_per_image: float
    """Accuracy of the second probe on their test images together."""


def evaluate(
    data: Labelled,
    experiences: Sequence[Experience],
    *,
    after: int,
    classes: int,
    config: LinearProbeConfig | None = None,
    seed: int,
) -> Row:
    """Evaluate the features after experience ``after`` (0-based) with a joint probe and an up-to probe.

    The up-to probe is trained on experiences 0 .. after, so it never predicts a class that has not appeared yet. Rows
    identify tasks, not labels: tasks may share classes. Features of the untrained network give the random-encoder
    baseline.

    >>> from types import SimpleNamespace
    >>> features, labels = torch.eye(4).repeat(3, 1), torch.arange(4).repeat(3)
    >>> data = Labelled(train_features=features, train_labels=labels, test_features=features, test_labels=labels)
    >>> def task(*own):
    ...     rows = torch.tensor(own)
    ...     return SimpleNamespace(train=torch.cat([rows, rows + 4]), validation=rows + 8, test=rows)
    >>> evaluate(data, [task(0, 1), task(2, 3)], after=0, classes=4, seed=0).per_task
    (100.0, 100.0)
    """
    _check(data, experiences, after=after, classes=classes)
    so_far = experiences[: after + 1]
    needed = [experiences]
    if len(so_far) < len(experiences):  # otherwise both probes are identical: equal rows, equal seed
        needed.append(so_far)
    answers = _side_by_side(
        partial(_correct_answers, data, config=config, seed=seed), needed, data.train_features.device
    )
    correct, correct_upto = answers[0], answers[-1]
    counts = [len(experience.test) for experience in experiences]
    per_task = tuple(100.0 * hits / count for hits, count in zip(correct, counts, strict=True))
    upto_per_task = [100.0 * hits / count for hits, count in zip(correct_upto, counts[: after + 1], strict=True)]
    return Row(
        per_task=per_task,
        joint=100.0 * sum(correct) / sum(counts),
        upto=sum(upto_per_task) / len(upto_per_task),
        upto_per_image=100.0 * sum(correct_upto) / sum(counts[: after + 1]),
    )


def _side_by_side(
    answers: Callable[[Sequence[Experience]], list[int]], needed: list[Sequence[Experience]], device: torch.device
) -> list[list[int]]:
    """The answers to all that is needed: on several CPU threads, each on one of them.

    Operations of a probe are too small to share out over threads.
    """
    if len(needed) == 1 or torch.get_num_threads() == 1 or device.type != "cpu":
        return [answers(experiences) for experiences in needed]
    # Switches of the process: threads of the pool inherit them.
    with full_float32(), threads(1), ThreadPoolExecutor(len(needed)) as pool:
        return list(pool.map(answers, needed))


def _correct_answers(
    data: Labelled, experiences: Sequence[Experience], *, config: LinearProbeConfig | None, seed: int
) -> list[int]:
    """For each experience, the number of correct predictions of a probe that is trained on all of them.

    The probe predicts only classes that it was trained on. An image of another class counts as an error.
    """
    device = data.train_features.device
    train = torch.cat([experience.train for experience in experiences]).to(device)
    validation = torch.cat([experience.validation for experience in experiences]).to(device)
    test = torch.cat([experience.test for experience in experiences]).to(device)
    known, train_labels = torch.unique(data.train_labels[train], return_inverse=True)
    # Validation images of a class without training images are always errors, so they are left out.
    validation = validation[torch.isin(data.train_labels[validation], known)]
    labelled = data.train_features[train], train_labels
    held_out = data.train_features[validation], torch.searchsorted(known, data.train_labels[validation])
    probe = fit_linear_probe(*labelled, *held_out, classes=len(known), config=config, seed=seed)
    hits = (known[probe.predict(data.test_features[test])] == data.test_labels[test]).cpu()
    return [int(own.sum()) for own in hits.split([len(experience.test) for experience in experiences])]


def _check(data: Labelled, experiences: Sequence[Experience], *, after: int, classes: int) -> None:
    """Reject invalid arguments. A row out of range would crash a GPU."""
    check_pair(data.train_features, data.train_labels, data.test_features, data.test_labels)
    check_label_range("train", data.train_labels, classes)
    check_label_range("test", data.test_labels, classes)
    if not 0 <= after < len(experiences):
        last = len(experiences) - 1
        raise InputError(f"after is {after}; with {len(experiences)} experiences, 0 to {last} is allowed.")
    splits = {"train": data.train_labels, "validation": data.train_labels, "test": data.test_labels}
    for number, experience in enumerate(experiences):
        for part, labels in splits.items():
            rows: torch.Tensor = getattr(experience, part)
            if len(rows) == 0 and part != "validation":  # small tasks may hold none out
                raise InputError(f"experience {number} has no {part} rows; every experience needs at least one.")
            low, high = (int(rows.min()), int(rows.max())) if len(rows) else (0, 0)
            if low < 0 or high >= len(labels):
                allowed = f"0 to {len(labels) - 1} is allowed"
                raise InputError(f"experience {number}: {part} rows run from {low} to {high}; {allowed}.")
