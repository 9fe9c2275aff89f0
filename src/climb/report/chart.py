"""Line charts as inline SVG. Colours and dashes are CSS classes, so charts follow the theme of the page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT = 420, 240  # units; small, so that text stays readable when a phone shrinks the chart
LEFT, RIGHT, TOP, BOTTOM = 48, 20, 10, 38
MARKED = 60  # a curve of at most so many points shows each one, with its value on hover

STYLES = ("first", "second", "third", "fourth", "fifth", "sixth")

Array = NDArray[np.float64]
Points = Sequence[tuple[float, float | None]]
"""Pairs (x, value), x ascending; None leaves a gap."""
Value = TypeVar("Value", float, Array)


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line of a chart. A value that is None or not finite leaves a gap."""

    name: str
    points: Points
    style: str = "first"
    """CSS class of the line: "first" to "sixth"."""

    @cached_property
    def array(self) -> Array:
        """float64 (n, 2): the points, NaN for missing values."""
        return np.array(self.points, dtype=np.float64).reshape(-1, 2)

    @cached_property
    def finite(self) -> Array:
        """The points that can be drawn."""
        return self.array[np.isfinite(self.array[:, 1])]


def styled_curves(named: Iterable[tuple[str, Points]]) -> list[Curve]:
    """A curve for each name with points, each in a style of its own."""
    pairs = zip(named, STYLES, strict=False)
    return [Curve(name=name, points=points, style=style) for (name, points), style in pairs if points]


def line_chart(
    curves: Sequence[Curve],
    *,
    title: str,
    x_label: str,
    from_zero: bool = True,
    level: float | None = None,
    boundaries: Sequence[float] = (),
) -> str:
    """Draw curves as an SVG element.

    Args:
        curves: at least one, each with at least one finite value.
        title: accessible name, read aloud by screen readers.
        x_label: label of the horizontal axis.
        from_zero: the vertical axis includes 0.
        level: height of a horizontal reference line.
        boundaries: positions of dashed vertical lines.

    >>> svg = line_chart([Curve(name="loss", points=[(1, 4.0), (2, None), (3, 2.5)])], title="loss", x_label="step")
    >>> svg.startswith("<svg"), svg.count("<path")
    (True, 1)
    """
    points = np.concatenate([curve.finite for curve in curves])
    (left, lowest), (right, highest) = points.min(axis=0).tolist(), points.max(axis=0).tolist()
    heights = [lowest, highest] + [0.0] * from_zero + ([] if level is None else [level])
    low, high = _nonempty(min(heights), max(heights))
    margin = 0.06 * (high - low)
    bottom = 0.0 if from_zero and min(heights) >= 0 else low - margin
    axes = _Axes(x=_nonempty(left, right), y=(bottom, high + margin))
    frame = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'data-x="{axes.x[0]:.9g} {axes.x[1]:.9g}" data-y="{axes.y[0]:.9g} {axes.y[1]:.9g}" '
        f'data-frame="{LEFT} {TOP} {WIDTH - RIGHT} {HEIGHT - BOTTOM}">'
    )
    places = (axes.across(x) for x in boundaries if axes.x[0] <= x <= axes.x[1])
    lines = [_line("boundary", x, TOP, x, HEIGHT - BOTTOM) for x in places]
    if level is not None:
        lines.append(_line("level", LEFT, axes.down(level), WIDTH - RIGHT, axes.down(level)))
    lines += [_curve(axes, curve, x_label) for curve in curves]
    return "\n".join([frame, *_grid(axes, x_label), *lines, "</svg>"])


class _Axes(NamedTuple):
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, x: Value) -> Value:
        return LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)

    def down(self, y: Value) -> Value:
        return HEIGHT - BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM)


def _nonempty(low: float, high: float) -> tuple[float, float]:
    """The range itself; around a single value, up to rounding, a wider one."""
    largest = max(abs(low), abs(high))
    room = 0.0 if high - low > max(1e-9 * largest, 1e-12) else max(0.1 * largest, 0.5)
    return low - room, high + room


def _grid(axes: _Axes, x_label: str) -> Iterator[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    horizontal, vertical = round_ticks(*axes.y), round_ticks(*axes.x, whole=True)
    for value in horizontal:
        y = axes.down(value)
        yield _line("grid", LEFT, y, right, y)
        yield svg_text(LEFT - 6, y + 4, "end", tick_text(value, horizontal))
    for value in vertical:
        yield svg_text(axes.across(value), bottom + 15, "middle", tick_text(value, vertical))
    yield _line("axis", LEFT, bottom, right, bottom)
    yield svg_text((LEFT + right) / 2, HEIGHT - 6, "middle", x_label)


def _line(style: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{style}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def svg_text(x: float, y: float, anchor: str, text: object, *, style: str = "") -> str:
    """A text element; ``anchor`` is "start", "middle" or "end"."""
    kind = f'class="{style}" ' if style else ""
    return f'<text {kind}x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(str(text))}</text>'


def _curve(axes: _Axes, curve: Curve, x_label: str) -> str:
    style, name = escape(curve.style), escape(curve.name)
    pixels = np.stack([axes.across(curve.array[:, 0]), axes.down(curve.array[:, 1])], axis=1)
    between_gaps = np.ma.clump_unmasked(np.ma.masked_invalid(pixels[:, 1]))  # type: ignore[no-untyped-call]
    path = "".join(_polyline(thinned(pixels[stretch])) for stretch in between_gaps)
    parts = [f'<path class="line {style}" data-name="{name}" d="{path}"/>'] if path else []
    if len(curve.finite) <= MARKED:
        parts += [
            f'<circle class="dot {style}" cx="{axes.across(x):.1f}" cy="{axes.down(value):.1f}" r="3">'
            f"<title>{name}, {escape(x_label)} {x:,g}: {value:,.4g}</title></circle>"
            for x, value in curve.finite.tolist()
        ]
    return "\n".join(parts)


def thinned(pixels: Array) -> Array:
    """Keep the first, lowest, highest and last of the points (n, 2) in each pixel column: the picture stays the same.

    >>> thinned(np.array([(1.0, 5.0), (1.1, 9.0), (1.2, 7.0), (1.3, 2.0), (1.4, 6.0), (2.0, 4.0)])).tolist()
    [[1.0, 5.0], [1.1, 9.0], [1.3, 2.0], [1.4, 6.0], [2.0, 4.0]]
    """
    column = np.floor(pixels[:, 0])
    first = np.flatnonzero(np.append(True, column[1:] != column[:-1]))
    last = np.append(first[1:], len(pixels)) - 1
    by_height = np.lexsort((pixels[:, 1], column))
    chosen: Array = pixels[np.unique(np.concatenate([first, last, by_height[first], by_height[last]]))]
    return chosen


def _polyline(pixels: Array) -> str:
    """Path data. A single point becomes a line of length 0, drawn as a dot by its round ends."""
    start, *rest = (f"{x:.1f} {y:.1f}" for x, y in pixels.tolist())
    return f"M{start}" + ("L" + " ".join(rest) if rest else "h0")


def round_ticks(low: float, high: float, *, whole: bool = False) -> list[float]:
    """At most seven multiples of 1, 2 or 5 times a power of ten between ``low`` and ``high``.

    With ``whole``, integers only.

    >>> round_ticks(0, 58.6)
    [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    >>> round_ticks(1, 5, whole=True)
    [1.0, 2.0, 3.0, 4.0, 5.0]
    """
    rough = (high - low) / 6
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    step = max(step, 1.0) if whole else step
    rounding = 1e-9 * (high - low) / step
    first, last = math.ceil(low / step - rounding), math.floor(high / step + rounding)
    return [number * step for number in range(first, last + 1)]


def tick_text(value: float, ticks: list[float]) -> str:
    """The label of a tick: as many decimals as the step needs, and a unit for millions.

    >>> tick_text(0.5, [0.0, 0.5, 1.0]), tick_text(4000.0, [0.0, 2000.0, 4000.0]), tick_text(5e5, [0.0, 5e5, 1e6])
    ('0.5', '4,000', '0.5 M')
    """
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(value) or 1.0
    largest = max(map(abs, ticks), default=abs(value))
    size, unit = next((pair for pair in ((1e9, " G"), (1e6, " M")) if largest >= pair[0]), (1.0, ""))
    decimals = max(0, -math.floor(math.log10(step / size) + 1e-9))
    return f"{value / size:,.{decimals}f}{unit}"
