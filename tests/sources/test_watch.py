"""Watching: what is found when, what is complete, and what is tried again."""

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

from climb.sources import Item, PassedOver, folder, open_source
from climb.sources import watch as watching
from climb.sources.item import UNREADABLE, Unusable
from climb.sources.watch import Found, watched

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


# -- how often ---------------------------------------------------------------------------------------------------------


def test_the_next_look_does_not_wait_for_as_long_as_the_reader_took(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(watching, "SETTLED_SECONDS", 0.0)
    clock.began = time.time() + 60  # so that the files are old enough to be taken at the first look
    files = [str(draw(tmp_path / f"{number}.png")) for number in range(3)]
    looks: list[float] = []

    def look(thorough: bool) -> Iterator[Found]:
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


def test_looks_are_as_rare_as_they_are_costly(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    looks: dict[bool, list[float]] = {True: [], False: []}

    def look(thorough: bool) -> Iterator[Found]:
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


def test_a_young_file_does_not_wait_for_the_next_costly_look(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None, clock: Clock
) -> None:
    file = draw(tmp_path / "a.png")
    looks: list[float] = []

    def look(thorough: bool) -> Iterator[Found]:
        looks.append(clock.now)
        clock.now += 0.01  # which is paid for by a pause
        yield str(file), os.stat(file)

    monkeypatch.setattr(watching, "COST", 1e9)  # there is only one thorough look, and a quick one
    clock.at(10.0, clock.set)  # or one that waits for another look would never end
    given = watched(look, everything_is_new, clock)
    assert next(given)[0] == str(file)
    assert len(looks) <= 2
    assert 0.2 <= clock.now <= 0.2 + 4 * watching.POLL_SECONDS


def test_more_young_files_than_are_kept_in_mind_all_come(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setattr(watching, "MOST_YOUNG", 3)
    for number in range(10):
        draw(tmp_path / f"{number}.png", number)
    arrivals = open_source(tmp_path, image_size=16, watch=True).arrivals()
    found = [next(arrivals) for _ in range(10)]
    arrivals.close()
    assert sorted(Path(item.where).stem for item in found if isinstance(item, Item)) == [str(n) for n in range(10)]


# -- what is complete --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [3600.0, -3600.0])
@pytest.mark.parametrize("at_start", [True, False])
def test_a_writer_whose_clock_is_wrong_is_waited_for(
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


def test_of_a_file_that_appears_no_time_is_believed(monkeypatch: pytest.MonkeyPatch, quick: None, clock: Clock) -> None:
    """All times on a server whose clock is behind are old."""
    status: Any = SimpleNamespace(st_size=1, st_mtime=1.0, st_ctime=1.0, st_mtime_ns=10**9)
    looks: list[float] = []

    def look(thorough: bool) -> Iterator[Found]:
        looks.append(clock.now)
        yield ("there", status) if len(looks) == 1 else ("appeared", status)

    given = watched(look, everything_is_new, clock)
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda path: status)
        names = [next(given)[0], next(given)[0]]
    given.close()
    assert names == ["there", "appeared"]
    assert clock.now - looks[1] >= watching.SETTLED_SECONDS


# -- what is tried again -----------------------------------------------------------------------------------------------


def test_what_could_not_be_read_for_now_is_tried_again_and_counted_once(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None, clock: Clock
) -> None:
    draw(tmp_path / "a.png")
    read, failures = folder.read_file, list[float]()

    def flaky(path: str) -> bytes:
        if len(failures) < 3:
            failures.append(clock.now)
            raise Unusable(UNREADABLE, os.strerror(errno.EIO))
        return read(path)

    monkeypatch.setattr(folder, "read_file", flaky)
    found = clock.arrivals(tmp_path, until=2.5)
    assert [type(arrival) for _, arrival in found] == [PassedOver, Item]
    pauses = [later - earlier for earlier, later in pairwise(failures)]
    assert pauses[0] >= 0.1  # ever longer: a dead drive is not asked all the time
    assert pauses[1] >= 0.2


def test_what_vanished_is_new_if_it_comes_back_and_not_kept_in_mind(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    file, aside = draw(tmp_path / "a.png"), tmp_path / ".aside"
    laters: list[watching.Later] = []
    monkeypatch.setattr(folder, "Later", lambda: laters.append(watching.Later()) or laters[-1])
    read = folder.read_file

    def unmounted(path: str) -> bytes:
        if len(found) == 0:
            file.rename(aside)
        return read(path)

    monkeypatch.setattr(folder, "read_file", unmounted)
    arrivals = open_source(tmp_path, image_size=16, watch=True).arrivals()
    found: list[Any] = []
    found.append(next(arrivals))
    assert [len(later) for later in laters] == [0]
    aside.rename(file)
    found.append(next(arrivals))
    arrivals.close()
    assert [type(arrival) for arrival in found] == [PassedOver, Item]
    assert found[0].identity == found[1].identity


def test_a_file_replaced_after_it_was_found_is_taken_as_what_it_is_now(
    draw: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None, clock: Clock
) -> None:
    """Content of the one with the identity of the other would be learned twice, or never."""
    root = tmp_path / "images"
    file, other = draw(root / "a.png", 0), draw(tmp_path / "other.png", 1, (20, 20))
    read = folder.read_file

    def replaced_meanwhile(path: str) -> bytes:
        if other.exists():
            os.replace(other, file)
        return read(path)

    monkeypatch.setattr(folder, "read_file", replaced_meanwhile)
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
