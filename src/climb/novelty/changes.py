"""Tell a shift of the stream from single unusual images: a test on the distribution of novelty scores."""

from __future__ import annotations

import importlib
import math
from typing import Any

from climb.errors import InputError

LAG = 200
"""Images by which the second reference is older: a memory that stores the new kind at once soon finds it familiar."""
WINDOW, RECENT = 300, 40
"""Scores that the test looks at, and how many of them are recent."""
ALPHA = 1e-5
"""Significance of the Kolmogorov-Smirnov test at each image."""
SETTLED = 500
"""Images after a change in which no other is reported: the memory adapts, which changes scores, too."""


class ChangeDetector:
    """Detects changes in two streams of scores, one image at a time, by KSWIN (Raab et al., 2020) of ``river``.

    The first stream compares images with the whole memory. A change that makes images denser lowers its scores. The
    second compares them with a memory that is `LAG` images old, so that new images stay new for a while.

    Args:
        seed: of the scores that the test draws from its window.

    Raises:
        InputError: ``river`` is not installed.

    >>> detector = ChangeDetector()
    >>> calm, new = [0.1, 0.4, 0.6, 0.9] * 100, [0.97, 0.99] * 50
    >>> 400 < next(n for n, score in enumerate(calm + new) if detector.update(score, score)) < 450
    True
    """

    def __init__(self, seed: int = 0) -> None:
        kswin = _library().KSWIN
        self._tests = [kswin(alpha=ALPHA, window_size=WINDOW, stat_size=RECENT, seed=seed + n) for n in range(2)]
        self._since = SETTLED

    def update(self, score: float, earlier: float = math.nan) -> bool:
        """Take the two scores of the next image; nan for a score that is unknown. True if the stream has changed."""
        changed = False
        for test, value in zip(self._tests, (score, earlier), strict=True):
            if not math.isnan(value):
                test.update(value)
                changed = changed or test.drift_detected
        self._since += 1
        if not changed or self._since <= SETTLED:
            return False
        self._since = 0
        return True


def _library() -> Any:
    try:
        return importlib.import_module("river.drift")
    except ImportError:
        raise InputError('detecting changes needs the extra: pip install "climb-ssl[drift]"') from None
