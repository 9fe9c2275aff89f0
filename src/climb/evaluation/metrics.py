"""From the accuracy matrix to the numbers of a table.

``accuracy_matrix[t][j]`` is the accuracy, in percent, on the test images of task j, of a probe trained after task
t on all classes, future ones included. Every metric takes ``test_counts``, the number of test images of each task:
without it each task weighs the same, with it each test image does (the ``_per_image`` values). The two differ
only when tasks differ in size. A metric that needs two tasks is None when there is one: JSON's null.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from climb.errors import InputError

Counts = Sequence[int] | None


def final_accuracy(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None) -> float:
    """FA: mean over tasks of the last row.

    >>> final_accuracy([[50, 10], [40, 60]])
    50.0
    """
    matrix, weights = _checked(accuracy_matrix, test_counts)
    return float(np.average(matrix[-1], weights=weights))


def continual_accuracy(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None) -> float:
    """CA: after each task, the mean over the tasks seen so far; then the mean of these over time.

    Image weights apply within a row; every moment of evaluation counts once.

    >>> continual_accuracy([[50, 10], [40, 60]])
    50.0
    """
    matrix, weights = _checked(accuracy_matrix, test_counts)
    seen = [np.average(row[: t + 1], weights=weights[: t + 1]) for t, row in enumerate(matrix)]
    return float(np.mean(seen))


def continual_accuracy_all(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None) -> float:
    """Mean of all entries: tasks seen and not yet seen, over time.

    >>> continual_accuracy_all([[50, 10], [40, 60]])
    40.0
    """
    matrix, weights = _checked(accuracy_matrix, test_counts)
    return float(np.average(matrix, axis=1, weights=weights).mean())


def forward_accuracy(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None) -> float | None:
    """Mean of the entries j > t: tasks not yet seen when evaluated. None with one task.

    >>> forward_accuracy([[50, 10], [40, 60]])
    10.0
    """
    matrix, weights = _checked(accuracy_matrix, test_counts)
    if len(matrix) == 1:
        return None
    moment, task = np.triu_indices(len(matrix), k=1)
    return float(np.average(matrix[moment, task], weights=weights[task]))


def forgetting(accuracy_matrix: npt.ArrayLike, test_counts: Counts = None) -> float | None:
    """Mean over all tasks but the last of: accuracy just after learning it, less accuracy at the end.

    Negative means that old tasks improved. None with one task.

    >>> forgetting([[50, 10], [40, 60]])
    10.0
    """
    matrix, weights = _checked(accuracy_matrix, test_counts)
    if len(matrix) == 1:
        return None
    lost = np.diagonal(matrix)[:-1] - matrix[-1, :-1]
    return float(np.average(lost, weights=weights[:-1]))


def summarize(
    accuracy_matrix: npt.ArrayLike,
    upto: Sequence[float],
    test_counts: Sequence[int],
    *,
    upto_per_image: Sequence[float],
) -> dict[str, float | None]:
    """Every metric under its name, and once more weighted by images under that name with ``_per_image``.

    ``upto[t]`` and ``upto_per_image[t]`` are the accuracies after task t of a probe trained and tested on the
    tasks seen so far only, as `evaluate` gives them.

    >>> summary = summarize([[50, 10], [40, 60]], [70, 50], [10, 30], upto_per_image=[70, 55])
    >>> summary["final_accuracy"], summary["final_accuracy_per_image"], summary["continual_accuracy_upto"]
    (50.0, 55.0, 60.0)
    """
    tasks = len(_checked(accuracy_matrix, test_counts)[0])
    for name, values in (("upto", upto), ("upto_per_image", upto_per_image)):
        if len(values) != tasks:
            raise InputError(f"{name} has {len(values)} values for {tasks} tasks; give one per task.")
    summary: dict[str, float | None] = {}
    for suffix, counts, seen in (("", None, upto), ("_per_image", test_counts, upto_per_image)):
        summary[f"final_accuracy{suffix}"] = final_accuracy(accuracy_matrix, counts)
        summary[f"continual_accuracy{suffix}"] = continual_accuracy(accuracy_matrix, counts)
        summary[f"continual_accuracy_upto{suffix}"] = float(np.mean(seen))
        summary[f"continual_accuracy_all{suffix}"] = continual_accuracy_all(accuracy_matrix, counts)
        summary[f"forward_accuracy{suffix}"] = forward_accuracy(accuracy_matrix, counts)
        summary[f"forgetting{suffix}"] = forgetting(accuracy_matrix, counts)
    return summary


def _checked(
    accuracy_matrix: npt.ArrayLike, test_counts: Counts
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The matrix and one weight per task, as arrays, or a plain error."""
    try:
        matrix = np.asarray(accuracy_matrix, dtype=np.float64)
    except ValueError as error:
        raise InputError("the accuracy matrix must have rows of equal length, one per task.") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise InputError(f"the accuracy matrix must be tasks x tasks, not {' x '.join(map(str, matrix.shape))}.")
    if not bool(((matrix >= 0) & (matrix <= 100)).all()):
        raise InputError("the accuracy matrix must hold percentages, 0 to 100, and nothing else.")
    weights = np.ones(len(matrix)) if test_counts is None else np.asarray(test_counts, dtype=np.float64)
    if weights.shape != (len(matrix),) or not bool((weights > 0).all()):
        raise InputError(f"test_counts must hold {len(matrix)} counts above 0, one per task, not {test_counts}.")
    return matrix, weights
