"""The accuracies of a result: what people call them, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """How one accuracy is told."""

    name: str
    """Within a line: "FA", "forgetting"."""
    meaning: str
    """In a sentence."""
    brief: str = ""
    """In a few words, for a terminal; nothing where it is left to the page."""

    @property
    def heading(self) -> str:
        """The name where it begins a line.

        >>> ACCURACIES["forgetting"].heading, ACCURACIES["knn_accuracy"].heading
        ('Forgetting', 'kNN')
        """
        return self.name.capitalize() if self.name.islower() else self.name


ACCURACIES = {
    "final_accuracy": Accuracy(
        name="FA",
        meaning="Final accuracy: after the last task, the mean over all tasks.",
        brief="final accuracy, all tasks",
    ),
    "continual_accuracy": Accuracy(
        name="CA",
        meaning="Continual accuracy: after each task the mean over the tasks seen so far, then the mean of these over "
        "time.",
        brief="mean over time, tasks seen so far",
    ),
    "continual_accuracy_upto": Accuracy(
        name="CA up-to",
        meaning="The same with a probe that knows the classes seen so far only: an easier question, not to be compared "
        "with the random encoder.",
        brief="the same, probe trained on the classes seen so far",
    ),
    "continual_accuracy_all": Accuracy(
        name="CA all",
        meaning="Mean over time and over all tasks, those not seen yet too.",
        brief="mean over time, all tasks",
    ),
    "forgetting": Accuracy(
        name="forgetting",
        meaning="Accuracy on a task just after it, less its accuracy at the end, mean over all tasks but the last; "
        "negative: old tasks improved.",
        brief="negative: old tasks improved",
    ),
    "forward_accuracy": Accuracy(
        name="forward", meaning="Mean over the tasks that were not seen yet when they were evaluated."
    ),
    "knn_accuracy": Accuracy(
        name="kNN",
        meaning="After the last task, with a vote of the nearest neighbours in place of the linear probe.",
        brief="k = 50, or all if fewer",
    ),
    "ridge_accuracy": Accuracy(
        name="ridge",
        meaning="After the last task, with a ridge classifier in place of the linear probe.",
        brief="alpha = 1",
    ),
    "random_encoder_accuracy": Accuracy(
        name="random encoder",
        meaning="The same network and probe before the first training step: what must be exceeded.",
        brief="same network and probe, before the first step",
    ),
}
"""By their names in `result.json`, in the order in which they are told."""

MAIN = ("final_accuracy", "continual_accuracy", "continual_accuracy_upto", "forgetting")
"""What a run is judged by."""
