"""Changes of a stream of scores are found soon, once, and not where there are none."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from climb.errors import InputError
from climb.novelty.changes import ChangeDetector


def found(*streams: np.ndarray) -> list[int]:
    detector = ChangeDetector()
    return [place for place, pair in enumerate(zip(*streams, strict=True)) if detector.update(*pair)]


def test_a_shift_in_either_stream_is_found_within_50_images() -> None:
    pytest.importorskip("river")
    random = np.random.default_rng(0)
    calm, unknown = random.uniform(size=1200), np.full(1200, math.nan)
    shifted = calm.copy()
    shifted[800:] = 0.8 + 0.2 * shifted[800:]
    for streams in ((shifted, unknown), (calm, shifted), (shifted, shifted), (1 - shifted, unknown)):
        (place,) = found(*streams)
        assert 800 <= place < 850


def test_single_outliers_and_a_calm_stream_raise_no_alarm() -> None:
    pytest.importorskip("river")
    scores = np.random.default_rng(1).uniform(size=3000)
    scores[::20] = 0.9999
    assert found(scores, scores) == []


def test_without_river_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "river.drift", None)
    with pytest.raises(InputError, match=r"climb-ssl\[drift\]"):
        ChangeDetector()
