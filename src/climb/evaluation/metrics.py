"""Metrics of the accuracy matrix, and their names and meanings in tables and pages.

``accuracy_matrix[t][j]`` is the accuracy in percent on the test images of task j after task t. Its probe is trained on
all classes, including future ones. Every metric takes ``test_counts``, the number of test images of each task. Without
it, tasks have equal weights; with it, test images have (the ``_per_image`` values). The two differ only if tasks differ
in size. With one task, a metric that needs two is None, JSON's null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from climb.errors import InputError

Counts = Sequence[int] | None


def final_accuracy(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None) -> float:
    """FA: the mean over tasks of the last row.

    >>> final_accuracy([[50, 10], [40, 60]])
    50.0
    """
    matrix, weights = _checked(accuracy_matrix, test_counts)
    return float(np.average(matrix[-1], weights=weights))


def continual_accuracy(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None) -> float:
    """CA: the mean over time of the mean over the tasks seen so far.

    Image weights apply within a row. All rows have equal weights.

    >>> continual_accuracy([[50, 10], [40, 60]])
    50.0
    """
    matrix, weights = _checked(accuracy_matrix, test_counts)
    seen = [np.average(row[: t + 1], weights=weights[: t + 1]) for t, row in enumerate(matrix)]
    return float(np.mean(seen))


def continual_accuracy_all(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None) -> float:
    """The mean of all entries, of tasks seen and not yet seen, over time.

    >>> continual_accuracy_all([[50, 10], [40, 60]])
    40.0
    """
    matrix, weights = _checked(accuracy_matrix, test_counts)
    return float(np.average(matrix, axis=1, weights=weights).mean())


def forward_accuracy(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None) -> float | None:
    """The mean of the entries j > t, of tasks not yet seen when evaluated. None with one task.

    >>> forward_accuracy([[50, 10], [40, 60]])
    10.0
    """
    matrix, weights = _checked(accuracy_matrix, test_counts)
    if len(matrix) == 1:
        return None
    moment, task = np.triu_indices(len(matrix), k=1)
    return float(np.average(matrix[moment, task], weights=weights[task]))


def forgetting(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None) -> float | None:
    """Accuracy on a task just after it, minus its accuracy at the end; mean over all tasks but the last.

    Negative values mean that old tasks improved. None with one task.

    >>> forgetting([[50, 10], [40, 60]])
    10.0
    """
    matrix, weights = _checked(accuracy_matrix, test_counts)
    if len(matrix) == 1:
        return None
    lost = np.diagonal(matrix)[:-1] - matrix[-1, :-1]
    return float(np.average(lost, weights=weights[:-1]))


METRICS = (final_accuracy, continual_accuracy, continual_accuracy_all, forward_accuracy, forgetting)
"""The metrics of one accuracy matrix."""


def summarize(
    accuracy_matrix: npt.ArrayLike,
    upto: Sequence[float],
    test_counts: Sequence[int],
    *,
    upto_per_image: Sequence[float],
) -> dict[str, float | None]:
    """All metrics by name; with the suffix ``_per_image``, weighted by test images.

    ``upto[t]`` and ``upto_per_image[t]`` are the accuracies after task t of a probe that is trained and tested on the
    tasks seen so far; see `evaluate`.

    >>> summary = summarize([[50, 10], [40, 60]], [70, 50], [10, 30], upto_per_image=[70, 55])
    >>> summary["final_accuracy"], summary["final_accuracy_per_image"], summary["continual_accuracy_upto"]
    (50.0, 55.0, 60.0)
    """
    tasks = len(_checked(accuracy_matrix, test_counts)[0])
    summary: dict[str, float | None] = {}
    for suffix, counts, seen in (("", None, upto), ("_per_image", test_counts, upto_per_image)):
        if len(seen) != tasks:
            raise InputError(f"upto{suffix} has {len(seen)} values for {tasks} tasks; give one per task.")
        summary |= {f"{metric.__name__}{suffix}": metric(accuracy_matrix, counts) for metric in METRICS}
        summary[f"continual_accuracy_upto{suffix}"] = float(np.mean(seen))
    return summary


def _checked(
    accuracy_matrix: npt.ArrayLike, test_counts: Counts
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The matrix and one weight per task, as arrays. Raises InputError for invalid values."""
    try:
        matrix = np.asarray(accuracy_matrix, dtype=np.float64)
    except ValueError as error:
        raise InputError("the accuracy matrix must have rows of equal length, one per task.") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise InputError(f"the accuracy matrix must be tasks x tasks, not {' x '.join(map(str, matrix.shape))}.")
    if not bool(((matrix >= 0) & (matrix <= 100)).all()):
        raise InputError("the accuracy matrix must contain percentages from 0 to 100 only.")
    weights = np.ones(len(matrix)) if test_counts is None else np.asarray(test_counts, dtype=np.float64)
    if weights.shape != (len(matrix),) or not bool((weights > 0).all()):
        raise InputError(f"test_counts must contain {len(matrix)} counts above 0, one per task, not {test_counts}.")
    return matrix, weights


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
