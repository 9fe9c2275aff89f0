"""Round numbers for an axis."""

from __future__ import annotations

import math


def round_ticks(low: float, high: float, *, most: int = 7, whole: bool = False) -> list[float]:
    """At most ``most`` multiples of 1, 2 or 5 times a power of ten, within ``low`` to ``high``; ``whole``: integers.

    >>> round_ticks(0, 58.6)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    >>> round_ticks(1, 5, whole=True)
    [1.0, 2.0, 3.0, 4.0, 5.0]
    """
    step = _step((high - low) / max(most - 1, 1))
    if whole:
        step = max(step, 1.0)
    rounding = 1e-9 * (high - low) / step
    first, last = math.ceil(low / step - rounding), math.floor(high / step + rounding)
    return [number * step for number in range(first, last + 1)]


def tick_text(value: float, ticks: list[float]) -> str:
    """A tick with as many decimals as its neighbours need, and short even if it is large.

    >>> tick_text(0.5, [0.0, 0.5, 1.0]), tick_text(4000.0, [0.0, 2000.0, 4000.0]), tick_text(5e5, [0.0, 5e5, 1e6])
    ('0.5', '4,000', '0.5 M')
    """
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(value) or 1.0
    largest = max(map(abs, ticks), default=abs(value))
    size, unit = next((pair for pair in ((1e9, " G"), (1e6, " M")) if largest >= pair[0]), (1.0, ""))
    decimals = max(0, -math.floor(math.log10(step / size) + 1e-9))
    return f"{value / size:,.{decimals}f}{unit}"


def _step(rough: float) -> float:
    """The least 1, 2 or 5 times a power of ten that is not below ``rough``."""
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
