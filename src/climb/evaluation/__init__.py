"""How good are the features of a frozen encoder?

`extract_features` turns images into features; the probes (`fit_linear_probe`, `knn_accuracy`,
`weighted_knn_accuracy`, `ridge_accuracy`) turn features and labels into accuracies in percent; `evaluate` gives one
row of the accuracy matrix of a stream of tasks, and `summarize` the numbers of a table from the whole matrix. Nothing
here touches the encoder's state or the global random generators, so evaluating more often cannot change training.
"""

from __future__ import annotations

from climb.evaluation.features import extract_features
from climb.evaluation.knn import knn_accuracy, weighted_knn_accuracy
from climb.evaluation.linear import LinearProbe, LinearProbeConfig, fit_linear_probe
from climb.evaluation.metrics import (
    continual_accuracy,
    continual_accuracy_all,
    final_accuracy,
    forgetting,
    forward_accuracy,
    summarize,
)
from climb.evaluation.protocol import Experience, Labelled, Row, evaluate
from climb.evaluation.ridge import ridge_accuracy

__all__ = [
    "Experience",
    "Labelled",
    "LinearProbe",
    "LinearProbeConfig",
    "Row",
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
