"""The page of a run in a browser, opened from a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from climb.report import write_report
from climb.report.page import read_memory

pytestmark = pytest.mark.slow(seconds=5)
Open = Callable[..., Any]


@pytest.fixture
def report(runs: Path) -> str:
    return write_report(runs / "climb-0", others=[runs / "sweep" / "fifo-1"]).as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_pictures_are_drawn(report: str, runs: Path, open_page: Open, tmp_path: Path, scheme: str) -> None:
    with open_page(report, scheme=scheme) as page:
        lengths = page.evaluate(
            '() => [...document.querySelectorAll("svg.chart path.line")].map((path) => path.getTotalLength())'
        )
        assert len(lengths) >= 20
        assert all(length > 0 for length in lengths)
        strokes = page.evaluate(
            '() => [...document.querySelectorAll("svg.chart path.line")].map((path) => getComputedStyle(path).stroke)'
        )
        assert "none" not in strokes
        page.locator(".sheet img").last.scroll_into_view_if_needed()
        sizes = page.evaluate("() => [...document.images].map((image) => [image.naturalWidth, image.width])")
        memory = read_memory(runs / "climb-0")
        assert memory is not None
        assert len(sizes) == len(memory.groups) > 0
        assert min(min(pair) for pair in sizes) > 0
        drawn = page.evaluate(
            """async () => {
              const image = new Image();
              image.src = document.querySelector("svg.map image").getAttribute("href");
              await image.decode();
              return image.naturalWidth;
            }"""
        )
        assert drawn > 500
        assert page.locator("svg.heat rect.cell").count() == 4
        page.screenshot(path=tmp_path / f"report-{scheme}.png", full_page=True)


def test_light_and_dark(report: str, open_page: Open) -> None:
    with open_page(report, scheme="dark") as page:
        colour = "() => [getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
        dark = page.evaluate(colour)
        page.get_by_role("button", name="light or dark").click()
        light = page.evaluate(colour)
        assert light != dark
        page.reload()
        assert page.evaluate(colour) == light  # stored
        page.get_by_role("button", name="light or dark").click()
        assert page.evaluate(colour) == dark
        page.emulate_media(media="print")
        assert page.evaluate(colour)[1] == light[1]  # print is light
        assert not page.get_by_role("button", name="light or dark").is_visible()


def test_values_under_the_pointer(report: str, open_page: Open) -> None:
    with open_page(report) as page:
        chart = page.locator("svg.chart").first
        box = chart.bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] / 2)
        shown = page.locator(".reading").inner_text()
        assert shown.startswith("at 2\ntasks seen: ")
        titles = page.locator("svg.chart").first.locator("circle title").all_text_contents()
        expected = float(next(text for text in titles if text.startswith("tasks seen, after task 2")).split(": ")[1])
        assert float(shown.splitlines()[1].split(": ")[1]) == pytest.approx(expected, abs=0.5)  # from pixel positions
        page.mouse.move(5, 5)
        assert page.locator(".reading").is_hidden()


def test_a_click_enlarges_a_centroid(report: str, open_page: Open) -> None:
    with open_page(report) as page:
        sheet = page.locator(".sheet").first
        before = sheet.locator("img").bounding_box()["width"]
        sheet.click()
        assert sheet.locator("img").bounding_box()["width"] > 2 * before


def test_a_phone_needs_no_horizontal_scrolling(report: str, open_page: Open) -> None:
    with open_page(report, width=390) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
