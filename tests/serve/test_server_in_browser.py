"""The server as a person meets it: a real browser, a real process, files that change meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
Start = Callable[..., Any]
Open = Callable[..., Any]
PAINTED = """() => [...document.querySelectorAll("svg.chart path.line")].map((path) => path.getTotalLength())"""
HEIGHTS = """() => [...document.querySelectorAll(".badge")].map((badge) => badge.getBoundingClientRect().height)"""
LOADED = """() => [...document.querySelectorAll("img")].map((image) => image.naturalWidth)"""


def column(page: Any, name: str) -> list[str]:
    """The texts of a column of the index, from top to bottom."""
    heads = page.locator("thead th").all_inner_texts()
    place = next(number for number, text in enumerate(heads) if text.strip(" ↑↓") == name)
    return [str(text) for text in page.locator(f"tbody tr > :nth-child({place + 1})").all_inner_texts()]


def test_index_sorts_and_compares(runs: Path, start: Start, open_page: Open, tmp_path: Path) -> None:
    shutil.copytree(runs / "climb-0", runs / "third")
    with start(runs) as address, open_page(address) as page:
        assert column(page, "Run") == ["climb-0", "sweep/fifo-1", "third"]
        assert page.evaluate(HEIGHTS) == pytest.approx([20] * 3, abs=5)  # a word is not broken in two
        page.get_by_role("button", name="Method").click()
        assert column(page, "Method") == ["climb", "climb", "climb-fifo"]
        page.get_by_role("button", name="Method").click()
        assert column(page, "Method") == ["climb-fifo", "climb", "climb"]
        page.get_by_role("button", name="FA", exact=True).click()  # numbers: the highest first
        values = [float(text) for text in column(page, "FA")]
        assert values == sorted(values, reverse=True)
        assert page.locator("th[aria-sort=descending]").inner_text().startswith("FA")

        compare = page.get_by_role("button", name="Compare")
        assert compare.is_disabled()
        page.get_by_label("compare climb-0").check()
        assert compare.is_disabled()
        page.get_by_label("compare sweep/fifo-1").check()
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=tmp_path / f"index-{scheme}.png")
        compare.click()
        page.wait_for_url("**/compare?run=*&run=*")
        assert page.locator("#beside h2").inner_text() == "Side by side"
        assert all(length > 0 for length in page.evaluate(PAINTED))
        assert page.locator("#beside .keys li").filter(has_text="fifo-1").count() >= 3
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=tmp_path / f"compare-{scheme}.png", full_page=True)


def test_a_run_that_cannot_be_read_does_not_keep_the_others_from_being_sorted(
    runs: Path, start: Start, open_page: Open
) -> None:
    (runs / "broken").mkdir()
    (runs / "broken" / "config.json").write_text("{")
    with start(runs) as address, open_page(address) as page:
        page.get_by_role("button", name="Seed").click()
        assert column(page, "Run") == ["sweep/fifo-1", "climb-0", "broken"]
        page.get_by_role("button", name="Run").click()
        assert column(page, "Run") == ["broken", "climb-0", "sweep/fifo-1"]


def test_choices_outlive_news(runs: Path, start: Start, open_page: Open) -> None:
    with start(runs) as address, open_page(address) as page:
        page.get_by_role("button", name="Run").click()
        page.get_by_role("button", name="Run").click()
        page.get_by_label("compare climb-0").check()
        shutil.copytree(runs / "climb-0", runs / "new-one")
        page.get_by_role("link", name="new-one").wait_for(timeout=15_000)
        assert page.get_by_label("compare climb-0").is_checked()
        assert column(page, "Run") == ["sweep/fifo-1", "new-one", "climb-0"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_run_is_followed_live(
    runs: Path, unfinished: Callable[[int], Path], start: Start, open_page: Open, tmp_path: Path, scheme: str
) -> None:
    folder = unfinished(3)
    whole = (runs / "climb-0" / "journal.jsonl").read_text()
    with start(runs) as address, open_page(f"{address}runs/live", scheme=scheme) as page:
        assert page.locator("#state").inner_text() == "learning"
        assert "0 of 2 tasks evaluated" in page.locator("#headline").inner_text()
        assert page.locator("#remembered img").count() == 0
        with open(folder / "journal.jsonl", "a") as handle:  # training goes on
            handle.write(whole[len((folder / "journal.jsonl").read_text()) :])
        page.locator("#learned svg.heat").wait_for(timeout=15_000)
        assert "2 of 2 tasks evaluated" in page.locator("#headline").inner_text()
        lengths = page.evaluate(PAINTED)
        assert len(lengths) >= 12
        assert all(length > 0 for length in lengths)
        for name in ("memory.safetensors", "result.json"):  # and ends
            shutil.copy(runs / "climb-0" / name, folder / name)
        page.locator("#state", has_text="finished").wait_for(timeout=15_000)
        page.locator("#remembered .sheet img").first.wait_for(timeout=15_000)
        assert page.locator(".card h3").first.inner_text() == "FA"
        assert min(page.evaluate(LOADED)) > 0
        assert page.locator("svg.map rect.frame").count() > 10
        page.screenshot(path=tmp_path / f"run-{scheme}.png", full_page=True)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
        assert dark == (scheme == "dark")


def test_a_token_in_the_address_is_shown_once(real_runs: Path, start: Start, open_page: Open) -> None:
    token = "a-token-of-some-length"
    with start(real_runs, "--token", token) as address, open_page(f"{address}?token={token}") as page:
        assert page.url == address
        page.get_by_role("link", name="climb-0").click()
        page.locator("#remembered .sheet img").first.wait_for(timeout=15_000)
        assert min(page.evaluate(LOADED)) > 0


def test_a_stream_of_ones_own(own_stream: Path, start: Start, open_page: Open) -> None:
    with start(own_stream) as address, open_page(address) as page:
        page.get_by_role("link", name="photos").click()
        assert "Learning from a stream" in page.locator("#headline").inner_text()
        assert all(length > 0 for length in page.evaluate(PAINTED))
