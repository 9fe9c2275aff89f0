"""The server in a browser: a real process, and files that change meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow(seconds=5)
Start = Callable[..., Any]
Open = Callable[..., Any]
PAINTED = """() => [...document.querySelectorAll("svg.chart path.line")].map((path) => path.getTotalLength())"""
HEIGHTS = """() => [...document.querySelectorAll(".badge")].map((badge) => badge.getBoundingClientRect().height)"""
LOADED = """() => [...document.images].every((image) => image.complete)"""
WIDTHS = """() => [...document.images].map((image) => image.naturalWidth)"""


def column(page: Any, name: str) -> list[str]:
    """The texts of a column of the index, from top to bottom."""
    heads = page.locator("thead th").all_inner_texts()
    place = next(number for number, text in enumerate(heads) if text.strip(" ↑↓") == name)
    return [str(text) for text in page.locator(f"tbody tr > :nth-child({place + 1})").all_inner_texts()]


def widths(page: Any) -> list[int]:
    """Widths of all images after loading."""
    page.wait_for_function(LOADED)
    found: list[int] = page.evaluate(WIDTHS)
    return found


def test_index_sorts_and_compares(runs: Path, start: Start, open_page: Open, tmp_path: Path) -> None:
    shutil.copytree(runs / "climb-0", runs / "third")
    with start(runs) as address, open_page(address) as page:
        assert column(page, "Run") == ["climb-0", "sweep/fifo-1", "third"]
        assert page.evaluate(HEIGHTS) == pytest.approx([20] * 3, abs=5)  # words are not broken
        page.get_by_role("button", name="Method").click()
        assert column(page, "Method") == ["climb", "climb", "climb-fifo"]
        page.get_by_role("button", name="Method").click()
        assert column(page, "Method") == ["climb-fifo", "climb", "climb"]
        page.get_by_role("button", name="FA", exact=True).click()  # numbers begin with the highest
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
        assert page.locator("#compare h2").inner_text() == "Side by side"
        assert all(length > 0 for length in page.evaluate(PAINTED))
        assert page.locator("#compare .keys li").filter(has_text="fifo-1").count() >= 3
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=tmp_path / f"compare-{scheme}.png", full_page=True)


def test_the_index_sorts_around_an_unreadable_run(runs: Path, start: Start, open_page: Open) -> None:
    (runs / "broken").mkdir()
    (runs / "broken" / "config.json").write_text("{")
    with start(runs) as address, open_page(address) as page:
        page.get_by_role("button", name="Seed").click()
        assert column(page, "Run") == ["sweep/fifo-1", "climb-0", "broken"]
        page.get_by_role("button", name="Run").click()
        assert column(page, "Run") == ["broken", "climb-0", "sweep/fifo-1"]


def test_selections_survive_updates(runs: Path, start: Start, open_page: Open, tmp_path: Path) -> None:
    with start(runs) as address, open_page(address) as page:
        page.get_by_role("button", name="Run").click()
        page.get_by_role("button", name="Run").click()
        page.get_by_label("compare climb-0").check()
        shutil.copytree(runs / "climb-0", tmp_path / "new-one")
        os.rename(tmp_path / "new-one", runs / "new-one")  # atomically: the page may poll right now
        page.get_by_role("link", name="new-one").wait_for()
        assert page.get_by_label("compare climb-0").is_checked()
        assert column(page, "Run") == ["sweep/fifo-1", "new-one", "climb-0"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_run_updates_live(
    runs: Path, unfinished: Callable[[int], Path], start: Start, open_page: Open, tmp_path: Path, scheme: str
) -> None:
    folder = unfinished(3)
    whole = (runs / "climb-0" / "journal.jsonl").read_bytes()
    with start(runs) as address, open_page(f"{address}runs/live", scheme=scheme) as page:
        assert page.locator("#state").inner_text() == "learning"
        assert "0 of 2 tasks evaluated" in page.locator("#summary").inner_text()
        assert page.locator("#memory img").count() == 0
        with open(folder / "journal.jsonl", "ab", buffering=0) as handle:  # training goes on
            handle.write(whole[(folder / "journal.jsonl").stat().st_size :])
        page.locator("#accuracy svg.heat").wait_for()
        assert "2 of 2 tasks evaluated" in page.locator("#summary").inner_text()
        lengths = page.evaluate(PAINTED)
        assert len(lengths) >= 12
        assert all(length > 0 for length in lengths)
        for name in ("memory.safetensors", "result.json"):  # and ends
            shutil.copy(runs / "climb-0" / name, tmp_path / name)
            os.rename(tmp_path / name, folder / name)  # atomically, as a run does
        page.locator("#state", has_text="finished").wait_for()
        page.locator("#memory .sheet img").first.wait_for()
        assert page.locator(".card h3").first.inner_text() == "FA"
        assert min(widths(page)) > 0
        assert page.locator("svg.map rect.frame").count() > 10
        page.screenshot(path=tmp_path / f"run-{scheme}.png", full_page=True)
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
        assert dark == (scheme == "dark")


def test_a_token_in_the_address_is_removed(real_runs: Path, start: Start, open_page: Open) -> None:
    token = "a-token-of-some-length"
    with start(real_runs, "--token", token) as address, open_page(f"{address}?token={token}") as page:
        assert page.url == address
        page.get_by_role("link", name="climb-0").click()
        page.locator("#memory .sheet img").first.wait_for()
        assert min(widths(page)) > 0


def test_a_stream_without_labels(own_stream: Path, start: Start, open_page: Open) -> None:
    with start(own_stream) as address, open_page(address) as page:
        page.get_by_role("link", name="photos").click()
        assert "Learning from a stream" in page.locator("#summary").inner_text()
        assert all(length > 0 for length in page.evaluate(PAINTED))
