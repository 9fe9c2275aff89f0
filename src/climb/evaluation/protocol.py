"""One row of the accuracy matrix: what the features of this moment are worth on every task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Protocol

import torch

from climb.errors import InputError
from climb.evaluation.inputs import check_label_range, check_pair
from climb.evaluation.linear import LinearProbeConfig, fit_linear_probe


class Experience(Protocol):
    """One task as the evaluator sees it: which rows are its own. All int64 (k,)."""

    @property
    def train(self) -> torch.Tensor:
        """Rows of the training split that were trained on."""

    @property
    def validation(self) -> torch.Tensor:
        """Rows of the training split that were held out."""

    @property
    def test(self) -> torch.Tensor:
        """Rows of the test split."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """The features and labels of a whole dataset, all on one device."""

    train_features: torch.Tensor
    """float32 (n, f), the whole training split, held-out rows included: experiences index it."""
    train_labels: torch.Tensor
    """int64 (n,)."""
    test_features: torch.Tensor
    """float32 (m, f), the whole test split."""
    test_labels: torch.Tensor
    """int64 (m,)."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Accuracies after one task, in percent."""

    per_task: tuple[float, ...]
    """On the test images of every experience, future ones included: the probe trained on all of them."""
    joint: float
    """The same probe on the test images of all experiences together."""
    upto: float
    """A second probe, trained and tested on the experiences so far only: mean over these experiences."""
    upto_per_image: float
    """The second probe on their test images together."""


def evaluate(
    data: Labelled,
    experiences: Sequence[Experience],
    *,
    after: int,
    classes: int,
    config: LinearProbeConfig | None = None,
    seed: int,
) -> Row:
    """Evaluate features taken after experience number ``after`` (0-based) with a joint and an up-to probe.

    The up-to probe knows only the classes of experiences 0 .. after, so no answer is lost to a class that has not
    come yet. Tasks are told apart by their rows, not by label: tasks may share classes. The random-encoder floor
    is this function on the features of the untrained network.

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
    config = config or LinearProbeConfig()
    so_far = experiences[: after + 1]
    right = _right_answers(data, experiences, config=config, seed=seed)
    # After the last one both probes have the same rows and the same seed: they are one.
    right_upto = right if len(so_far) == len(experiences) else _right_answers(data, so_far, config=config, seed=seed)
    counts = [len(experience.test) for experience in experiences]
    per_task = tuple(100.0 * hits / count for hits, count in zip(right, counts, strict=True))
    upto_per_task = [100.0 * hits / count for hits, count in zip(right_upto, counts[: after + 1], strict=True)]
    return Row(
        per_task=per_task,
        joint=100.0 * sum(right) / sum(counts),
        upto=sum(upto_per_task) / len(upto_per_task),
        upto_per_image=100.0 * sum(right_upto) / sum(counts[: after + 1]),
    )


def _right_answers(
    data: Labelled, experiences: Sequence[Experience], *, config: LinearProbeConfig, seed: int
) -> list[int]:
    """For each experience, how many test images a probe trained on all these experiences labels rightly.

    The probe chooses among the classes it was trained on and no others; an image of another class counts as wrong.
    """
    device = data.train_features.device
    train = torch.cat([experience.train for experience in experiences]).to(device)
    validation = torch.cat([experience.validation for experience in experiences]).to(device)
    test = torch.cat([experience.test for experience in experiences]).to(device)
    known, train_labels = torch.unique(data.train_labels[train], return_inverse=True)
    # A held-out image of a class without training images cannot be right, so it cannot help to choose weights.
    validation = validation[torch.isin(data.train_labels[validation], known)]
    probe = fit_linear_probe(
        data.train_features[train],
        train_labels,
        data.train_features[validation],
        torch.searchsorted(known, data.train_labels[validation]),
        classes=len(known),
        config=config,
        seed=seed,
    )
    right = (known[probe.predict(data.test_features[test])] == data.test_labels[test]).cpu()
    starts = accumulate((len(experience.test) for experience in experiences), initial=0)
    return [int(right[start:end].sum()) for start, end in pairwise(starts)]


def _check(data: Labelled, experiences: Sequence[Experience], *, after: int, classes: int) -> None:
    """Refuse what cannot be evaluated, before a row out of range can crash a GPU."""
    check_pair(data.train_features, data.train_labels, data.test_features, data.test_labels)
    check_label_range("train", data.train_labels, classes)
    check_label_range("test", data.test_labels, classes)
    if not 0 <= after < len(experiences):
        last = len(experiences) - 1
        raise InputError(f"after is {after}; with {len(experiences)} experiences, 0 to {last} is allowed.")
    for number, experience in enumerate(experiences):
        for part, rows, size in (
            ("train", experience.train, len(data.train_labels)),
            ("validation", experience.validation, len(data.train_labels)),
            ("test", experience.test, len(data.test_labels)),
        ):
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < size:
                raise InputError(
                    f"experience {number}: {part} rows run from {int(rows.min())} to {int(rows.max())}; "
                    f"the split has {size} rows, so 0 to {size - 1} is allowed."
                )
        # Held-out rows may be missing from small tasks; the other two may not.
        for part, rows in (("train", experience.train), ("test", experience.test)):
            if len(rows) == 0:
                raise InputError(f"experience {number} has no {part} rows; every experience needs at least one.")
