"""Standard errors, paired differences, and the cosine vote."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize

from climb.errors import InputError
from climb.evaluation.measured import Measured, probe_to_read, size_warning
from climb.evaluation.three_probes import PROBES, quick_probes, three_probes


def rows(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes in 6 dimensions that overlap."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 2
    return torch.randn(count, 6, generator=generator) + labels.unsqueeze(1), labels


def test_the_standard_error_is_the_spread_of_repeated_test_sets() -> None:
    """The probes are trained once; 200 test sets of 100 images show how much their accuracy varies."""
    train = rows(200, 0)
    measured = [quick_probes(train, rows(100, seed), seed=0)["ridge"] for seed in range(1, 201)]
    spread = float(np.std([each.accuracy for each in measured], ddof=1))
    claimed = float(np.mean([each.standard_error for each in measured]))
    assert claimed == pytest.approx(spread, rel=0.15)


def test_a_paired_difference_leaves_out_what_is_common() -> None:
    answers = torch.rand(400, generator=torch.Generator().manual_seed(0)) < 0.6
    better = answers.clone()
    better[torch.nonzero(~answers)[:20]] = True
    first, second = Measured.of_answers(better), Measured.of_answers(answers)
    gain = second - first
    assert gain.accuracy == pytest.approx(-5.0)
    assert first.standard_error is not None
    assert gain.standard_error is not None
    assert gain.standard_error < first.standard_error / 2
    with pytest.raises(InputError, match="400 and 3 values are not pairs"):
        _ = first - Measured(values=np.zeros(3))
    assert Measured(values=np.array([50.0])).standard_error is None


def test_a_test_set_is_too_small_only_where_nothing_is_told() -> None:
    clear = Measured(values=np.repeat([100.0, 0.0], [40, 60]))  # 40 points
    assert size_warning(clear, 100) is None
    unclear = Measured(values=np.repeat([100.0, -100.0, 0.0], [21, 19, 60]))
    warning = size_warning(unclear, 100)
    assert warning is not None
    assert warning == "100 test images tell differences from 12.7 points on; 1 point needs about 16,000"
    large = Measured(values=np.tile(unclear.values, 400))  # still no difference, but a large set says so
    assert size_warning(large, 40_000) is None


def test_the_probe_to_read_follows_the_number_of_training_images() -> None:
    assert [probe_to_read(count)[0] for count in (7, 99, 100, 9000)] == ["knn", "knn", "ridge", "ridge"]


def test_neighbours_vote_by_cosine_as_in_scikit_learn() -> None:
    (train, labels), (test, answers) = rows(61, 0), rows(80, 1)
    vote = KNeighborsClassifier(20, metric="cosine", weights=lambda gaps: np.exp((1 - gaps) / 0.1))
    reference = vote.fit(normalize(train), labels).score(normalize(test), answers)
    found = three_probes((train, labels), (test, answers), classes=2, seed=0)
    assert set(found) == set(PROBES)
    assert found["knn"].accuracy == pytest.approx(100 * reference)


def test_the_split_is_for_the_linear_probe_alone() -> None:
    train, test = rows(60, 0), rows(60, 2)
    split = torch.arange(10), torch.arange(10, 60)
    measured, whole = (three_probes(train, test, split=each, classes=2, seed=0) for each in (split, None))
    quick = quick_probes(train, test, seed=0)
    for name in ("knn", "ridge"):
        assert measured[name].accuracy == whole[name].accuracy == quick[name].accuracy
    assert measured["linear"].accuracy != whole["linear"].accuracy
