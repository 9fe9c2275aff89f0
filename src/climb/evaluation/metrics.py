"""Metrics of the accuracy matrix, and their names and meanings in tables and pages.

``accuracy_matrix[t][j]`` is the accuracy in percent on the test images of task j after segment t of the stream. Its
probe is trained on all classes, including future ones. Every metric takes

- ``test_counts``, the number of test images of each task. Without it, tasks have equal weights; with it, test images
  have (the ``_per_image`` values). The two differ only if tasks differ in size.
- ``shown``, the tasks that each segment shows, numbered as they are shown first. Without it, segment t shows task t.
  Tasks may be any groups of images, such as domains.

A metric that needs a second task or segment is None, JSON's null, without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from climb.errors import InputError

Counts = Sequence[int] | None
Shown = Sequence[Sequence[int]] | None


def final_accuracy(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None, shown: Shown = None) -> float:
    """FA: the mean over tasks of the last row.

    >>> final_accuracy([[50, 10], [40, 60]])
    50.0
    """
    checked = _Checked(accuracy_matrix, test_counts, shown)
    return float(np.average(checked.matrix[-1], weights=checked.weights))


def continual_accuracy(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None, shown: Shown = None) -> float:
    """CA: the mean over time of the mean over the tasks seen so far.

    Image weights apply within a row. All rows have equal weights.

    >>> continual_accuracy([[50, 10], [40, 60]])
    50.0
    """
    checked = _Checked(accuracy_matrix, test_counts, shown)
    rows = zip(checked.matrix, checked.seen, strict=True)
    return float(np.mean([np.average(row[:seen], weights=checked.weights[:seen]) for row, seen in rows]))


def continual_accuracy_all(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None, shown: Shown = None) -> float:
    """The mean of all entries, of tasks seen and not yet seen, over time.

    >>> continual_accuracy_all([[50, 10], [40, 60]])
    40.0
    """
    checked = _Checked(accuracy_matrix, test_counts, shown)
    return float(np.average(checked.matrix, axis=1, weights=checked.weights).mean())


def forward_accuracy(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None, shown: Shown = None) -> float | None:
    """The mean of the entries of tasks not yet seen when evaluated. None if there are none.

    >>> forward_accuracy([[50, 10], [40, 60]])
    10.0
    """
    checked = _Checked(accuracy_matrix, test_counts, shown)
    moment, task = np.nonzero(np.arange(len(checked.weights)) >= np.array(checked.seen)[:, None])
    if len(moment) == 0:
        return None
    return float(np.average(checked.matrix[moment, task], weights=checked.weights[task]))


def forgetting(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None, shown: Shown = None) -> float | None:
    """Accuracy on a task just after it was last shown, minus its accuracy at the end; the mean over all tasks but those
    of the last segment.

    Negative values mean that old tasks improved. None if the last segment shows all tasks.

    >>> forgetting([[50, 10], [40, 60]]), forgetting([[50, 10], [40, 60], [60, 40]], shown=[[0], [1], [0]])
    (10.0, 20.0)
    """
    checked = _Checked(accuracy_matrix, test_counts, shown)
    old = checked.last < len(checked.matrix) - 1
    if not old.any():
        return None
    return float(np.average(checked.lost[old], weights=checked.weights[old]))


def by_task(accuracy_matrix: npt.ArrayLike, shown: Shown = None) -> list[dict[str, float | None]]:
    """Final accuracy, continual accuracy (the mean over time since the task was first shown) and forgetting of each
    task.

    >>> by_task([[50, 10], [40, 60]])[0]
    {'final_accuracy': 40.0, 'continual_accuracy': 45.0, 'forgetting': 10.0}
    """
    checked = _Checked(accuracy_matrix, None, shown)
    end = len(checked.matrix) - 1
    return [
        {
            "final_accuracy": float(checked.matrix[-1, task]),
            "continual_accuracy": float(checked.matrix[np.array(checked.seen) > task, task].mean()),
            "forgetting": float(checked.lost[task]) if checked.last[task] < end else None,
        }
        for task in range(len(checked.weights))
    ]


METRICS = (final_accuracy, continual_accuracy, continual_accuracy_all, forward_accuracy, forgetting)
"""The metrics of one accuracy matrix."""


def summarize(
    accuracy_matrix: npt.ArrayLike,
    upto: Sequence[float],
    test_counts: Sequence[int],
    *,
    upto_per_image: Sequence[float],
    shown: Shown = None,
) -> dict[str, float | None]:
    """All metrics by name; with the suffix ``_per_image``, weighted by test images.

    ``upto[t]`` and ``upto_per_image[t]`` are the accuracies after segment t of a probe that is trained and tested on
    the tasks seen so far; see `evaluate`.

    >>> summary = summarize([[50, 10], [40, 60]], [70, 50], [10, 30], upto_per_image=[70, 55])
    >>> summary["final_accuracy"], summary["final_accuracy_per_image"], summary["continual_accuracy_upto"]
    (50.0, 55.0, 60.0)
    """
    segments = len(_Checked(accuracy_matrix, test_counts, shown).matrix)
    summary: dict[str, float | None] = {}
    for suffix, counts, seen in (("", None, upto), ("_per_image", test_counts, upto_per_image)):
        if len(seen) != segments:
            raise InputError(f"upto{suffix} has {len(seen)} values for {segments} segments; give one per segment.")
        summary |= {f"{metric.__name__}{suffix}": metric(accuracy_matrix, counts, shown) for metric in METRICS}
        summary[f"continual_accuracy_upto{suffix}"] = float(np.mean(seen))
    return summary


class _Checked:
    """The matrix, one weight per task, and when tasks were seen, as arrays. Raises InputError for invalid values."""

    def __init__(self, accuracy_matrix: npt.ArrayLike, test_counts: Counts, shown: Shown) -> None:
        try:
            self.matrix = np.asarray(accuracy_matrix, dtype=np.float64)
        except ValueError as error:
            raise InputError("the accuracy matrix must have rows of equal length, one per task.") from error
        matrix = self.matrix
        segments, tasks = matrix.shape if matrix.ndim == 2 else (0, 0)
        if matrix.size == 0 or (shown is None and segments != tasks):
            raise InputError(f"the accuracy matrix must be tasks x tasks, not {' x '.join(map(str, matrix.shape))}.")
        if not bool(((matrix >= 0) & (matrix <= 100)).all()):
            raise InputError("the accuracy matrix must contain percentages from 0 to 100 only.")
        shown = [[task] for task in range(tasks)] if shown is None else shown
        self.seen = [1 + max(chain.from_iterable(shown[: t + 1])) for t in range(len(shown))]
        """The number of tasks seen after each segment."""
        if (len(self.seen), self.seen[-1:]) != (segments, [tasks]):
            raise InputError(f"the accuracy matrix is {segments} x {tasks}; 'shown' has {len(shown)} segments.")
        self.last = np.array([max(t for t, own in enumerate(shown) if task in own) for task in range(tasks)])
        """The last segment that shows each task."""
        self.lost = matrix[self.last, np.arange(tasks)] - matrix[-1]
        """What was lost of each task since then."""
        self.weights = np.ones(tasks) if test_counts is None else np.asarray(test_counts, dtype=np.float64)
        if self.weights.shape != (tasks,) or not bool((self.weights > 0).all()):
            raise InputError(f"test_counts must contain {tasks} counts above 0, one per task, not {test_counts}.")


@dataclass(frozen=True)
class Accuracy:
    """Name and description of one accuracy."""

    name: str
    """Short name within a line, such as "FA" or "forgetting"."""
    brief: str
    """A few words for a terminal; empty if only pages show it."""
    meaning: str
    """One sentence for a page."""

    @property
    def heading(self) -> str:
        """The name at the beginning of a line.

        >>> ACCURACIES["forgetting"].heading, ACCURACIES["knn_accuracy"].heading
        ('Forgetting', 'kNN')
        """
        return self.name.capitalize() if self.name.islower() else self.name


ACCURACIES = {
    "final_accuracy": Accuracy(
        "FA", "final accuracy, all tasks", "Final accuracy: after the last task, the mean over all tasks."
    ),
    "continual_accuracy": Accuracy(
        "CA",
        "mean over time, tasks seen so far",
        "Continual accuracy: after each task the mean over the tasks seen so far, then the mean of these over time.",
    ),
    "continual_accuracy_upto": Accuracy(
        "CA up-to",
        "the same, probe trained on the classes seen so far",
        "The same with a probe trained on the classes seen so far only. This is easier; do not compare it with the "
        "random encoder.",
    ),
    "continual_accuracy_all": Accuracy(
        "CA all", "mean over time, all tasks", "Mean over time and over all tasks, including those not seen yet."
    ),
    "forgetting": Accuracy(
        "forgetting",
        "negative: old tasks improved",
        "Accuracy on a task just after it, minus its accuracy at the end; mean over all tasks but the last. Negative: "
        "old tasks improved.",
    ),
    "forward_accuracy": Accuracy("forward", "", "Mean over tasks that were not seen yet when evaluated."),
    "knn_accuracy": Accuracy(
        "kNN",
        "k = 50, or all if fewer",
        "After the last task, with a nearest-neighbour classifier in place of the linear probe.",
    ),
    "ridge_accuracy": Accuracy(
        "ridge", "alpha = 1", "After the last task, with a ridge classifier in place of the linear probe."
    ),
    "random_encoder_accuracy": Accuracy(
        "random encoder",
        "same network and probe, before the first step",
        "The same network and probe before the first training step: the baseline.",
    ),
}
"""By their names in `result.json`, in the order of display."""

MAIN = ("final_accuracy", "continual_accuracy", "continual_accuracy_upto", "forgetting")
"""The main metrics of a run."""
