from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from climb.report.chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MARKED,
    RIGHT,
    TOP,
    WIDTH,
    Curve,
    line_chart,
    round_ticks,
    thinned,
    tick_text,
)


def chart(*points: tuple[float, float | None], **options: object) -> ElementTree.Element:
    curves = [Curve(name="loss", points=points)]
    return ElementTree.fromstring(line_chart(curves, title="the loss", x_label="step", **options))  # type: ignore[arg-type]


def path_of(svg: ElementTree.Element) -> str:
    path = svg.find("path")
    assert path is not None
    return path.attrib["d"]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", text)]


def test_ends_of_a_curve_lie_at_the_ends_of_the_axes() -> None:
    xs_and_ys = numbers(path_of(chart((0, 0.0), (10, 5.0))))
    assert xs_and_ys[:3] == [LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT]
    height = HEIGHT - TOP - BOTTOM
    assert xs_and_ys[3] == pytest.approx(HEIGHT - BOTTOM - height / 1.06, abs=0.06)  # 6 % margin above


@given(st.lists(st.floats(-1e6, 1e6) | st.none(), min_size=1, max_size=50))
def test_nothing_is_drawn_outside_the_frame(values: list[float | None]) -> None:
    if all(value is None for value in values):
        return
    for from_zero in (False, True):
        svg = chart(*enumerate(values, start=1), from_zero=from_zero)
        for dot in svg.iter("circle"):
            assert LEFT - 0.1 <= float(dot.attrib["cx"]) <= WIDTH - RIGHT + 0.1
            assert TOP - 0.1 <= float(dot.attrib["cy"]) <= HEIGHT - BOTTOM + 0.1
        assert len(svg.findall("circle")) == sum(value is not None for value in values)


@pytest.mark.parametrize("gap", [None, math.nan, math.inf])
def test_a_missing_value_breaks_the_line(gap: float | None) -> None:
    svg = chart((1, 4.0), (2, 3.0), (3, gap), (4, 2.0))
    drawn = path_of(svg)
    assert drawn.count("M") == 2
    assert drawn.endswith("h0")  # a single value is a dot
    assert len(svg.findall("circle")) == 3


def test_points_of_a_short_curve_have_titles() -> None:
    titles = [title.text for title in chart((1, 4.0), (2, 3.25)).iter("title")]
    assert titles == ["loss, step 1: 4", "loss, step 2: 3.25"]
    assert not list(chart(*((x, 1.0) for x in range(MARKED + 1))).iter("title"))


def test_level_and_boundaries_are_lines() -> None:
    svg = chart((0, 1.0), (10, 2.0), level=4.0, boundaries=[5, 99])
    (boundary,) = svg.findall("line[@class='boundary']")  # the other one is out of range
    assert float(boundary.attrib["x1"]) == pytest.approx((LEFT + WIDTH - RIGHT) / 2)
    (level,) = svg.findall("line[@class='level']")
    assert TOP <= float(level.attrib["y1"]) < min(numbers(path_of(svg))[1::2])  # above both values, inside the frame


def test_from_zero_sets_the_start_of_the_axis() -> None:
    assert "0" in [text.text for text in chart((1, 100.0), (2, 90.0)).iter("text")]
    assert "0" not in [text.text for text in chart((1, 100.0), (2, 90.0), from_zero=False).iter("text")]


@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-300])
def test_a_curve_of_zeros_lies_on_the_axis(value: float) -> None:
    svg = chart((1, value), (2, value))
    assert numbers(path_of(svg))[1::2] == [HEIGHT - BOTTOM] * 2
    assert len(svg.findall("line[@class='grid']")) >= 2


def test_names_are_escaped() -> None:
    nasty = '<script>"&'
    curve = Curve(name=nasty, points=[(1, 1.0)])
    svg = ElementTree.fromstring(line_chart([curve], title=nasty, x_label=nasty))
    assert svg.attrib["aria-label"] == nasty
    assert nasty in [text.text for text in svg.iter("text")]
    assert [title.text for title in svg.iter("title")] == [f"{nasty}, {nasty} 1: 1"]


def test_a_long_curve_is_thinned_and_keeps_its_extremes() -> None:
    pixels = [(x / 100, math.sin(x)) for x in range(10_000)]
    pixels[4321] = (43.21, -50.0)
    kept = [(x, y) for x, y in thinned(np.array(pixels)).tolist()]
    assert len(kept) <= 4 * 100
    assert (43.21, -50.0) in kept
    assert kept == sorted(kept)
    assert (kept[0], kept[-1]) == (pixels[0], pixels[-1])
    drawn = path_of(chart(*((x, math.sin(x)) for x in range(100_000))))
    assert len(numbers(drawn)) <= 2 * 4 * (WIDTH - LEFT - RIGHT + 1)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9), st.booleans())
def test_ticks_are_few_and_inside(low: float, length: float, whole: bool) -> None:
    high = low + max(length, abs(low) * 1e-6)
    ticks = round_ticks(low, high, whole=whole)
    assert len(ticks) <= 7
    assert whole or len(ticks) >= 2
    room = (high - low) * 1e-6
    assert all(low - room <= tick <= high + room for tick in ticks)
    texts = [tick_text(tick, ticks) for tick in ticks]
    assert len(set(texts)) == len(texts)
    assert not whole or all(tick == int(tick) for tick in ticks)
