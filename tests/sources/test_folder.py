"""Folders, once and watched."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from climb.sources import Item, PassedOver, Source, open_source
from climb.sources import watch as watching
from climb.sources.source import Once

from .conftest import Clock

Draw = Callable[..., Path]


def names(source: Source) -> list[str]:
    return [Path(item.where).name for item in source]


def test_all_images_below_in_order_and_nothing_else(draw: Draw, tmp_path: Path) -> None:
    for name in ("b/2.png", "b/10.png", "a.JPG", "b/c/1.webp", ".hidden/1.png", "b/.part.png"):
        draw(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    source = open_source(str(tmp_path), image_size=16)
    found = list(source)
    assert [os.path.relpath(item.where, tmp_path) for item in found] == ["a.JPG", "b/10.png", "b/2.png", "b/c/1.webp"]
    assert len({item.identity for item in found}) == 4
    assert all(item.image.shape == (3, 16, 16) for item in found)
    assert source.rereadable
    assert [item.identity for item in source] == [item.identity for item in found]  # each iteration starts over


def test_another_time_or_size_makes_another_image(draw: Draw, tmp_path: Path) -> None:
    file = draw(tmp_path / "a.png")
    source = open_source(str(tmp_path), image_size=16)
    first = [item.identity for item in source]
    os.utime(file, ns=(1, 1))
    second = [item.identity for item in source]
    draw(file, size=(20, 20))
    os.utime(file, ns=(1, 1))
    third = [item.identity for item in source]
    assert len({*first, *second, *third}) == 3


def test_seen_files_are_not_read(draw: Draw, tmp_path: Path) -> None:
    draw(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no image")
    source = open_source(str(tmp_path), image_size=16)
    known = Once()
    assert len(list(source.arrivals(seen=known))) == 2
    source.passed_over.clear()
    assert list(source.arrivals(seen=known)) == []
    assert not source.passed_over


def test_damaged_files_are_counted_named_and_passed_over(
    draw: Draw, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = draw(tmp_path / "a.png").read_bytes()
    for number in range(25):
        (tmp_path / f"b{number}.png").write_bytes(b"no image")
    (tmp_path / "c.png").write_bytes(data[:200])
    draw(tmp_path / "d.png")
    source = open_source(str(tmp_path), image_size=16)
    arrivals = list(source.arrivals())
    assert [Path(a.where).name for a in arrivals if isinstance(a, Item)] == ["a.png", "d.png"]
    passed = [a for a in arrivals if isinstance(a, PassedOver)]
    assert len(passed) == 26
    assert all(a.for_good and a.identity is not None for a in passed)
    assert source.passed_over == {"not an image": 25, "truncated": 1}
    assert "b0.png: not an image" in caplog.text
    assert "c.png: truncated" in caplog.text
    assert caplog.text.count("passed over") == 21  # the rest is counted


def test_a_file_without_permission_may_come_back(draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "nowhere.png")
    source = open_source(str(tmp_path), image_size=16)
    assert names(source) == ["a.png"]  # a broken link is skipped
    (tmp_path / "nowhere.png").mkdir()
    (passed,) = [a for a in source.arrivals() if isinstance(a, PassedOver)]
    assert (passed.reason, passed.for_good) == ("unreadable", False)


def test_a_watched_folder_gives_complete_files_as_they_appear(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watching, "SETTLED_SECONDS", 0.3)
    root, data = tmp_path / "images", draw(tmp_path / "elsewhere" / "x.png", 1).read_bytes()
    draw(root / "old.png")
    os.utime(root / "old.png", (1, 1))
    slow = root / "slow.png"

    def write(place: int) -> None:
        with open(slow, "ab") as handle:
            handle.write(data[place : place + 100])

    places = range(0, len(data), 100)
    for number, place in enumerate(places):
        clock.at(0.1 * number, functools.partial(write, place))
    found = clock.arrivals(root, until=3.0)
    assert all(isinstance(arrival, Item) for _, arrival in found)  # never half a file
    assert [Path(arrival.where).name for _, arrival in found] == ["old.png", "slow.png"]
    assert found[1][0] >= 0.1 * (len(places) - 1) + 0.3


def test_a_watched_folder_has_no_end(tmp_path: Path) -> None:
    assert open_source(str(tmp_path), image_size=16, watch=True).endless
    assert not open_source(str(tmp_path), image_size=16).endless


def test_a_watched_file_with_a_time_in_the_future_is_read(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watching, "SETTLED_SECONDS", 0.2)
    os.utime(draw(tmp_path / "a.png"), (2e9 + 1e9, 3e9))
    arrivals = open_source(str(tmp_path), image_size=16, watch=True).arrivals()
    first = next(arrivals)
    arrivals.close()
    assert isinstance(first, Item)


def test_watching_gives_a_file_once(draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(watching, "SETTLED_SECONDS", 0.0)
    draw(tmp_path / "a.png")
    arrivals = open_source(str(tmp_path), image_size=16, watch=True).arrivals(patience=0.05)
    first = next(arrival for arrival in arrivals if arrival is not None)
    assert isinstance(first, Item)
    assert [next(arrivals) for _ in range(5)] == [None] * 5
    arrivals.close()


def test_a_scan_stops_when_asked() -> None:
    stop = Event()
    stop.set()
    assert list(watching.watched(lambda thorough: iter([("a", os.stat("."))]), lambda path, status: True, stop)) == []
