from __future__ import annotations

import pytest
import torch

from climb.errors import ClimbError, InputError
from climb.evaluation.inputs import check_label_range, check_labelled, check_pair


def zeros(rows: int) -> torch.Tensor:
    return torch.zeros(rows, dtype=torch.int64)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (torch.zeros(3, 2, 2), zeros(3), r"features must be floating point \(n, f\), not torch.float32 \(3, 2, 2\)"),
        (torch.zeros(3, 2, dtype=torch.uint8), zeros(3), "not torch.uint8"),
        (torch.zeros(3, 0), zeros(3), r"not torch.float32 \(3, 0\)"),
        (torch.zeros(3, 2), torch.zeros(3), r"labels must be int64 \(n,\), not torch.float32 \(3,\)"),
        (torch.zeros(3, 2), zeros(4), "3 rows of features but 4 labels"),
        (torch.zeros(0, 2), zeros(0), "no rows"),
        (torch.zeros(3, 2), zeros(3).to("meta"), r"features are on cpu but labels on meta.*labels.to\('cpu'\)"),
    ],
)
def test_unusable_input_is_refused_by_name(features: torch.Tensor, labels: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=f"^some part: .*{message}"):
        check_labelled("some part", features, labels)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_diverged_encoder_is_called_that(value: float) -> None:
    features = torch.zeros(4, 3)
    features[1:3, 0] = value
    with pytest.raises(ClimbError, match=r"2 of 4 rows of features are not finite\. The encoder has diverged"):
        check_labelled("train", features, zeros(4))


@pytest.mark.parametrize("labels", [[0, 3], [-1, 2]])
def test_labels_outside_the_classes_are_refused(labels: list[int]) -> None:
    with pytest.raises(InputError, match="with 3 classes, 0 to 2 is allowed"):
        check_label_range("train", torch.tensor(labels), 3)


def test_parts_must_fit_together() -> None:
    with pytest.raises(InputError, match="train features have 2 columns but test features 3"):
        check_pair(torch.zeros(4, 2), zeros(4), torch.zeros(4, 3), zeros(4))
    with pytest.raises(InputError, match="labels run from -1"):
        check_pair(torch.zeros(4, 2), zeros(4) - 1, torch.zeros(4, 2), zeros(4))
    with pytest.raises(InputError, match=r"^test: 4 rows of features but 5 labels"):
        check_pair(torch.zeros(4, 2), zeros(4), torch.zeros(4, 2), zeros(5))
