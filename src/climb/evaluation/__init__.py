"""Evaluation of the features of a frozen encoder.

`extract_features` encodes images. The probes (`fit_linear_probe`, `knn_accuracy`, `weighted_knn_accuracy`,
`ridge_accuracy`) turn features and labels into accuracies in percent. `evaluate` returns one row of the accuracy matrix
of a stream of tasks, and `summarize` turns the matrix into the metrics of a table. Evaluation changes neither the
encoder nor the global random generators, so its frequency cannot affect training.
"""

from __future__ import annotations

from climb.evaluation.features import extract_features
from climb.evaluation.linear import LinearProbe, LinearProbeConfig, fit_linear_probe
from climb.evaluation.metrics import (
    by_task,
    continual_accuracy,
    continual_accuracy_all,
    final_accuracy,
    forgetting,
    forward_accuracy,
    summarize,
)
from climb.evaluation.protocol import Experience, Labelled, Row, evaluate
from climb.evaluation.simple_probes import knn_accuracy, ridge_accuracy, weighted_knn_accuracy

__all__ = [
    "Experience",
    "Labelled",
    "LinearProbe",
    "LinearProbeConfig",
    "Row",
    "by_task",
    "continual_accuracy",
    "continual_accuracy_all",
    "evaluate",
    "extract_features",
    "final_accuracy",
    "fit_linear_probe",
    "forgetting",
    "forward_accuracy",
    "knn_accuracy",
    "ridge_accuracy",
    "summarize",
    "weighted_knn_accuracy",
]
