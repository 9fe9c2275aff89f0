"""Watching: when files are found, when they are complete, and when they are retried."""

from __future__ import annotations

import errno
import functools
import os
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from climb.images.decode import UNREADABLE, ImageError
from climb.images.find import FoundFile
from climb.sources import Item, PassedOver, folder, open_source
from climb.sources import watch as watching
from climb.sources.watch import watched

from .conftest import Clock

Draw = Callable[..., Path]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything ten times as fast."""
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watching, "SETTLED_SECONDS", 0.2)
    monkeypatch.setattr(watching, "FIRST_PAUSE", 0.1)


def everything_is_new(path: str, status: os.stat_result) -> bool:
    return True


# -- scans -------------------------------------------------------------------------------------------------------------


def test_the_time_of_the_caller_does_not_delay_the_next_scan(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(watching, "SETTLED_SECONDS", 0.0)
    clock.began = time.time() + 60  # so that the files are complete at the first scan
    files = [str(draw(tmp_path / f"{number}.png")) for number in range(3)]
    looks: list[float] = []

    def look(thorough: bool) -> Iterator[FoundFile]:
        if thorough:
            looks.append(clock.now)
        return ((file, os.stat(file)) for file in files)

    given = watched(look, everything_is_new, clock)
    while len(looks) < 2:
        next(given)
        taken = clock.now
        clock.now += 0.4  # the learner is busy
    given.close()
    assert taken - looks[0] == pytest.approx(3 * 0.4 + watching.POLL_SECONDS)


def test_the_time_between_scans_grows_with_their_cost(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    looks: dict[bool, list[float]] = {True: [], False: []}

    def look(thorough: bool) -> Iterator[FoundFile]:
        looks[thorough].append(clock.now)
        clock.now += 0.05 if thorough else 0.005  # a large folder
        if len(looks[True]) == 2:
            clock.set()
        yield "a", os.stat(".")

    assert list(watched(look, lambda path, status: False, clock)) == []
    assert looks[True][1] - looks[True][0] >= 0.05 * watching.COST
    quick = looks[False]
    assert len(quick) > 2
    assert all(later - earlier >= 0.005 * watching.COST for earlier, later in pairwise(quick))


def test_a_young_file_does_not_wait_for_the_next_full_scan(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None, clock: Clock
) -> None:
    file = draw(tmp_path / "a.png")
    looks: list[float] = []

    def look(thorough: bool) -> Iterator[FoundFile]:
        looks.append(clock.now)
        clock.now += 0.01  # so that a pause follows
        yield str(file), os.stat(file)

    monkeypatch.setattr(watching, "COST", 1e9)  # one full scan and one quick scan
    clock.at(10.0, clock.set)  # else a failing test would never end
    given = watched(look, everything_is_new, clock)
    assert next(given)[0] == str(file)
    assert len(looks) <= 2
    assert 0.2 <= clock.now <= 0.2 + 4 * watching.POLL_SECONDS


def test_young_files_beyond_the_limit_are_found_later(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(watching, "MAX_YOUNG", 3)
    for number in range(10):
        draw(tmp_path / f"{number}.png", number)
    arrivals = open_source(tmp_path, image_size=16, watch=True).arrivals()
    found = [next(arrivals) for _ in range(10)]
    arrivals.close()
    assert sorted(Path(item.where).stem for item in found if isinstance(item, Item)) == [str(n) for n in range(10)]


# -- complete files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [3600.0, -3600.0])
@pytest.mark.parametrize("at_start", [True, False])
def test_a_file_is_complete_whatever_the_clock_of_its_writer(
    behind: float, at_start: bool, draw: Draw, tmp_path: Path, quick: None, clock: Clock
) -> None:
    data = draw(tmp_path / "elsewhere" / "x.png", size=(40, 40)).read_bytes()
    root, piece = tmp_path / "images", len(data) // 8
    root.mkdir()

    def write(place: int) -> None:
        with open(root / "x.png", "ab") as handle:
            handle.write(data[place : place + piece])
        os.utime(root / "x.png", (clock.time() - behind,) * 2)

    places = list(range(0, len(data), piece))
    if at_start:
        write(places.pop(0))
    for number, place in enumerate(places, 1):
        clock.at(0.08 * number, functools.partial(write, place))
    ((moment, arrival),) = clock.arrivals(root, until=1.5)
    assert isinstance(arrival, Item)
    assert moment >= 0.08 * len(places) + 0.2


def test_the_times_of_a_new_file_are_not_trusted(monkeypatch: pytest.MonkeyPatch, quick: None, clock: Clock) -> None:
    """All times on a server whose clock is behind are old."""
    status: Any = SimpleNamespace(st_size=1, st_mtime=1.0, st_ctime=1.0, st_mtime_ns=10**9)
    looks: list[float] = []

    def look(thorough: bool) -> Iterator[FoundFile]:
        looks.append(clock.now)
        yield ("old", status) if len(looks) == 1 else ("appeared", status)

    given = watched(look, everything_is_new, clock)
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path: status)
        names = [next(given)[0], next(given)[0]]
    given.close()
    assert names == ["old", "appeared"]
    assert clock.now - looks[1] >= watching.SETTLED_SECONDS


# -- retries -----------------------------------------------------------------------------------------------------------


def test_unreadable_files_are_retried_and_counted_once(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None, clock: Clock
) -> None:
    draw(tmp_path / "a.png")
    read, failures = folder.read_image_file, list[float]()

    def flaky(path: str) -> bytes:
        if len(failures) < 3:
            failures.append(clock.now)
            raise ImageError(UNREADABLE, os.strerror(errno.EIO))
        return read(path)

    monkeypatch.setattr(folder, "read_image_file", flaky)
    found = clock.arrivals(tmp_path, until=2.5)
    assert [type(arrival) for _, arrival in found] == [PassedOver, Item]
    pauses = [later - earlier for earlier, later in pairwise(failures)]
    assert pauses[0] >= 0.1  # pauses grow, so that a dead drive is not polled
    assert pauses[1] >= 0.2


def test_a_vanished_file_is_forgotten_and_new_when_it_returns(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    file, aside = draw(tmp_path / "a.png"), tmp_path / ".aside"
    schedules: list[watching.RetrySchedule] = []
    monkeypatch.setattr(folder, "RetrySchedule", lambda: schedules.append(watching.RetrySchedule()) or schedules[-1])
    read = folder.read_image_file

    def unmounted(path: str) -> bytes:
        if len(found) == 0:
            file.rename(aside)
        return read(path)

    monkeypatch.setattr(folder, "read_image_file", unmounted)
    arrivals = open_source(tmp_path, image_size=16, watch=True).arrivals()
    found: list[Any] = []
    found.append(next(arrivals))
    assert [len(schedule) for schedule in schedules] == [0]
    aside.rename(file)
    found.append(next(arrivals))
    arrivals.close()
    assert [type(arrival) for arrival in found] == [PassedOver, Item]
    assert found[0].identity == found[1].identity


def test_a_file_replaced_after_it_was_found_gets_a_new_identity(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None, clock: Clock
) -> None:
    """New content under the old identity would be learned twice, or never."""
    root = tmp_path / "images"
    file, other = draw(root / "a.png", 0), draw(tmp_path / "other.png", 1, (20, 20))
    read = folder.read_image_file

    def replaced_meanwhile(path: str) -> bytes:
        if other.exists():
            os.replace(other, file)
        return read(path)

    monkeypatch.setattr(folder, "read_image_file", replaced_meanwhile)
    (_, first), (_, second) = clock.arrivals(root, until=1.5)
    assert isinstance(first, PassedOver)
    assert (first.reason, first.for_good) == (UNREADABLE, False)
    assert isinstance(second, Item)
    assert second.identity == folder.file_identity(str(file), os.stat(file)) != first.identity


def test_a_folder_that_cannot_be_listed_is_named_once(
    draw: Draw,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: None,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    draw(tmp_path / "a.png")
    draw(tmp_path / "locked" / "b.png")
    scan, locked = os.scandir, True

    def scandir(path: str) -> Any:
        if locked and str(path).endswith("locked"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)  # root may list everything

    def unlock() -> None:
        nonlocal locked
        locked = False

    clock.at(1.0, unlock)
    found = clock.arrivals(tmp_path, until=2.0)
    assert [(Path(arrival.where).name, moment > 1) for moment, arrival in found] == [("a.png", False), ("b.png", True)]
    assert caplog.text.count("locked") == 1
