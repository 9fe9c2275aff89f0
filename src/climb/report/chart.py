"""Line charts as inline SVG. Colours and dashes are classes, so that the page's style follows the reader's theme."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby

from climb.errors import InputError
from climb.report.ticks import round_ticks, tick_text

WIDTH, HEIGHT = 420, 240  # units; small, so that the text is still readable when a phone shrinks the chart
LEFT, RIGHT, TOP, BOTTOM = 48, 20, 10, 38
MARKED = 60  # a curve of at most so many points shows each one, with its value on hover

Pixel = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line of a chart. A value that is None or not finite leaves a gap."""

    name: str
    points: Sequence[tuple[float, float | None]]
    """Pairs (x, value), x ascending."""
    style: str = "first"
    """Class of the line: "first" to "sixth"."""


def line_chart(
    curves: Sequence[Curve],
    *,
    title: str,
    x_label: str,
    from_zero: bool = True,
    level: float | None = None,
    boundaries: Sequence[float] = (),
) -> str:
    """An SVG element; ``title`` is what a screen reader says.

    Args:
        curves: at least one, with at least one value among them.
        title: what is drawn.
        x_label: what runs to the right.
        from_zero: the vertical axis includes 0.
        level: a horizontal line, to compare the curves with.
        boundaries: places of dashed vertical lines.

    >>> svg = line_chart([Curve(name="loss", points=[(1, 4.0), (2, None), (3, 2.5)])], title="loss", x_label="step")
    >>> svg.startswith("<svg"), svg.count("<path")
    (True, 1)
    """
    values = [value for curve in curves for _, value in _finite(curve)]
    if not values:
        raise InputError(f"nothing to draw in the chart '{title}': no curve has a value; give at least one")
    bounds = values + ([level] if level is not None else []) + ([0.0] if from_zero else [])
    places = [x for curve in curves for x, _ in _finite(curve)]
    axes = _Axes(x=_widened(min(places), max(places)), y=_vertical(bounds, from_zero))
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}" '
        f'data-x="{axes.x[0]:.9g} {axes.x[1]:.9g}" data-y="{axes.y[0]:.9g} {axes.y[1]:.9g}" '
        f'data-frame="{LEFT} {TOP} {WIDTH - RIGHT} {HEIGHT - BOTTOM}">',
        *_grid(axes, x_label),
        *(_boundary(axes, x) for x in boundaries if axes.x[0] <= x <= axes.x[1]),
    ]
    if level is not None:
        y = axes.down(level)
        parts.append(f'<line class="level" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
    parts += [_curve(axes, curve, x_label) for curve in curves]
    return "\n".join([*parts, "</svg>"])


@dataclass(frozen=True, kw_only=True)
class _Axes:
    x: tuple[float, float]
    y: tuple[float, float]

    def across(self, x: float) -> float:
        return LEFT + (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - LEFT - RIGHT)

    def down(self, y: float) -> float:
        return HEIGHT - BOTTOM - (y - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - TOP - BOTTOM)


def _finite(curve: Curve) -> Iterator[tuple[float, float]]:
    return ((x, value) for x, value in curve.points if value is not None and math.isfinite(value))


def _widened(low: float, high: float) -> tuple[float, float]:
    """A range that is not empty: a single value, or one up to rounding, gets room on both sides."""
    largest = max(abs(low), abs(high))
    room = 0.0 if high - low > max(1e-9 * largest, 1e-12) else max(0.1 * largest, 0.5)
    return low - room, high + room


def _vertical(bounds: Sequence[float], from_zero: bool) -> tuple[float, float]:
    """The values' range with air above and below, but none below an axis that starts at 0."""
    low, high = _widened(min(bounds), max(bounds))
    air = (high - low) * 0.06
    return (0.0 if from_zero and min(bounds) >= 0 else low - air), high + air


def _grid(axes: _Axes, x_label: str) -> Iterator[str]:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    horizontal = round_ticks(*axes.y)
    for value in horizontal:
        y = axes.down(value)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick_text(value, horizontal)}</text>'
    vertical = round_ticks(*axes.x, whole=True)
    for value in vertical:
        x = axes.across(value)
        yield f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle">{tick_text(value, vertical)}</text>'
    yield f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>'
    middle = (LEFT + right) / 2
    yield f'<text x="{middle:g}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>'


def _boundary(axes: _Axes, at: float) -> str:
    x = axes.across(at)
    return f'<line class="boundary" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>'


def _curve(axes: _Axes, curve: Curve, x_label: str) -> str:
    drawn = "".join(_path(thinned(pixels)) for pixels in _unbroken(axes, curve))
    parts = (
        [f'<path class="line {escape(curve.style)}" data-name="{escape(curve.name)}" d="{drawn}"/>'] if drawn else []
    )
    marked = list(_finite(curve))
    if len(marked) <= MARKED:
        parts += [
            f'<circle class="dot {escape(curve.style)}" cx="{axes.across(x):.1f}" cy="{axes.down(value):.1f}" r="3">'
            f"<title>{escape(curve.name)}, {escape(x_label)} {x:,g}: {value:,.4g}</title></circle>"
            for x, value in marked
        ]
    return "\n".join(parts)


def _unbroken(axes: _Axes, curve: Curve) -> Iterator[list[Pixel]]:
    """The stretches between gaps, as places in the picture."""
    for there, stretch in groupby(curve.points, key=lambda point: point[1] is not None and math.isfinite(point[1])):
        if there:
            yield [(axes.across(x), axes.down(value)) for x, value in stretch if value is not None]


def thinned(pixels: Sequence[Pixel]) -> list[Pixel]:
    """The same picture with fewer points: of those in one column of pixels the first, lowest, highest and last.

    >>> thinned([(1.0, 5.0), (1.1, 9.0), (1.2, 7.0), (1.3, 2.0), (1.4, 6.0), (2.0, 4.0)])
    [(1.0, 5.0), (1.1, 9.0), (1.3, 2.0), (1.4, 6.0), (2.0, 4.0)]
    """
    kept: list[Pixel] = []
    for _, column in groupby(pixels, key=lambda pixel: math.floor(pixel[0])):
        found = list(column)
        heights = [y for _, y in found]
        wanted = {0, heights.index(min(heights)), heights.index(max(heights)), len(found) - 1}
        kept += [found[place] for place in sorted(wanted)]
    return kept


def _path(pixels: Sequence[Pixel]) -> str:
    """A polyline; a point that stands alone becomes a line of no length, which its round ends make a dot."""
    start, *rest = (f"{x:.1f} {y:.1f}" for x, y in pixels)
    return f"M{start}" + ("L" + " ".join(rest) if rest else "h0")
